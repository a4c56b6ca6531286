"""What outlives the console's process: its history, in a local file or in two topics."""
