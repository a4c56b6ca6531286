"""Share groups by ranges of offsets, for engines that read records elsewhere."""
