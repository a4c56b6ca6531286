"""Share consumers side by side on a cluster of three real Apache Kafka brokers."""
