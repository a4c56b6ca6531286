"""The options of clients, checked once, and Kafka's properties as options."""
