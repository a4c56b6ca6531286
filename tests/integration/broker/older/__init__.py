"""Data directories that earlier versions of the broker have written, and what is in them."""
