"""Client quotas: their entities and limits, and the rates that are measured against them."""
