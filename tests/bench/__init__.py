"""Benchmarks: what is fast, beside whom, and what it costs.

    peers/           side by side with Apache Kafka and with other queues (``make bench-peers``)
    alone/           figures of our broker that have a limit and no rival
    paired.py        an older commit and this one, in turn
    worker.py        the worker framework; redrive.py and retry_tiers.py its topics

They share what is beside them here:

    client_process   the measured client runs in a process of its own, so its CPU time is its own
    equal_batches    logs whose batches all have the same number of records
    spark_process    two Sparks that stay warm
    document.py      the parts of ``docs/benchmarks.md``, each written by its own command

A workload that loses or repeats a record fails; it is not slower, it is wrong.
"""
