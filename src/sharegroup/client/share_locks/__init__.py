"""Rules for acquisition locks that both kinds of members use: renewals, refusals and gaps."""
