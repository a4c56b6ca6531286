"""Requests of transactional producers, and about their transactions."""
