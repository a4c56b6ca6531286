"""The bytes of the protocol: frames, headers, messages, record batches. Pure: no clock, no I/O."""
