"""Principals, and what they may do."""
