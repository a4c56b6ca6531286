"""The runs of share partitions: read from the durable state or from a live broker, and drawn."""
