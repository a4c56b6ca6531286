"""Results of records, and replies to those that ask for them."""
