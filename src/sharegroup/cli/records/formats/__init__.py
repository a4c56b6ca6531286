"""Formats of records on standard input and output."""
