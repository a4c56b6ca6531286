"""The metrics of clients, by Kafka's names, and their export to Prometheus."""
