"""Requests of classic and consumer groups, and committed offsets."""
