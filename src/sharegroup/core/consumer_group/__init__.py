"""Consumer groups of the classic protocol: members, rebalances and committed offsets."""
