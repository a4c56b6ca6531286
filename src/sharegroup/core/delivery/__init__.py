"""The delivery of records: the state of a share partition, as runs of offsets."""
