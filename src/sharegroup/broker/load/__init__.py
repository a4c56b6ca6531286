"""What bounds a broker's work: budgets, slices of the event loop, turns, admission."""
