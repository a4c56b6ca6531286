"""Share groups for Kafka (KIP-932) in Python: queues on topics."""

__version__ = "0.2.0"
