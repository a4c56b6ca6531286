"""Requests of share groups: fetch, acknowledge, members, start offsets, stored state."""
