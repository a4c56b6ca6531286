"""Groups: their members, epochs, assignments and offsets, as decisions without I/O."""
