"""Connections to brokers: authentication, TLS, metadata and leaders, and retries of requests."""
