"""Benchmarks: our broker and a real Apache Kafka under the same unmodified client, in one run.

`python -m tests.bench` (``make bench``) runs every workload against three peers in turn, round
after round: ours with ``durability=fsync``, ours with ``os``, and Kafka.  Figures of a shared
machine drift by the minute; ratios of neighbouring measurements drift much less, so only
ratios are compared with what we want to reach.

    workloads/       one module per workload: what is prepared, what is measured, in which unit
    peers.py         the three brokers, of which only one is awake at a time
    client_process   the measured client runs in a process of its own, so its CPU time is its own
    equal_batches    logs whose batches all have the same number of records
    report.py        medians, ratios and ``docs/benchmarks.md``

A workload that loses or repeats a record fails; it is not slower, it is wrong.
"""
