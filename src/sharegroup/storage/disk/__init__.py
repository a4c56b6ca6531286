"""Files of a data directory: reading, writing, syncing, names of folders, bytes set aside."""
