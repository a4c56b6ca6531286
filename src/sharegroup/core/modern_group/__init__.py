"""Consumer groups of KIP-848: members, heartbeats, assignors, reconciliation and records."""
