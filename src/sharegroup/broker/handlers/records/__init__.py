"""Requests that write, read, find and delete records, and about their producers."""
