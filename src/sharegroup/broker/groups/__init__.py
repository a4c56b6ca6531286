"""The coordinators of share groups and consumer groups, and the log that both write."""
