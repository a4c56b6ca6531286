"""The two coordinators of groups, and the one log that both keep."""
