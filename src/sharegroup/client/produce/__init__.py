"""`Producer`: partitions, queues of batches, and the task that sends them."""
