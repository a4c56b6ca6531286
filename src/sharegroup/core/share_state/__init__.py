"""The durable state of share partitions, as ``__share_group_state`` keeps it."""
