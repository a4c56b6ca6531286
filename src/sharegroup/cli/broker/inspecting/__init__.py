"""Reading the files of a data directory without a broker."""
