"""Requests that describe and change settings and client quotas."""
