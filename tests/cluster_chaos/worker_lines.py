"""The names of the journal lines that the worker application writes beside its handlers'."""

FAILED = "acknowledgement.failed"
