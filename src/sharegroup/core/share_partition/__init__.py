"""One share partition: states of records, locks, acknowledgements, and the runs that hold them."""
