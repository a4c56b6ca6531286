"""Requests that create, describe and delete topics."""
