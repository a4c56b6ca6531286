"""Logins by SASL: mechanisms, settings, pending and failed logins, and the keys of tokens."""
