"""The verb that starts the console."""
