"""Decisions about acquisition locks that hold for every member: renewals, refusals and gaps."""
