"""Requests about ACLs and SCRAM users."""
