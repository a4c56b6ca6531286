"""The tables of docs/limits.md: each limit, what it bounds, and what happens at it."""
