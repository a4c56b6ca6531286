"""Transactions of producers: the decisions of the transaction coordinator (KIP-98, KIP-890)."""
