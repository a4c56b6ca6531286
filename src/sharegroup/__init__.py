"""Share groups for Kafka, in Python: queues on topics, as KIP-932 describes them."""

__version__ = "0.1.0"
