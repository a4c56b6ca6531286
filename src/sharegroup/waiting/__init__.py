"""Records that wait for their next attempt: a delay, a retry, a hold; and commands for them.

A waiting record is in a retry topic of its group (`retry_topics`), or held by a worker process.
Kafka cannot remove a record from a topic, and a command races the scheduler that moves the record.
So a command is an intent in a compacted topic, which the owner of the record's partition carries
out: it moves the record and notes that it is moved in one transaction, and passes the original
over when it meets it.

    retry_topics       names                             done_offsets      moved above a commit
    control_records    commands and answers, as JSON     control_topic     reads and writes them
    waiting_records    reads, runs and cancels           waiting_filter    conditions

The scheduler that carries commands out is a part of the worker (`worker.retrying`).
"""
