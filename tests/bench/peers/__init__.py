"""Side by side with Apache Kafka 4.4, and with queues of other kinds (``make bench-peers``).

The same unmodified client runs against our broker and against the peer, in one run, in turn,
A B A B, never two brokers at a time.  Figures of a shared machine drift by the minute; neighbours
in time drift together, so each pair gives one ratio, and only ratios are compared with what we
want to reach.

    workloads/       P1 to P15: what is prepared, what is measured, in which unit
    brokers.py       our broker and Apache Kafka; queues.py: RabbitMQ, NATS JetStream, Redis
    run.py           pairs, one after the other
    ratios.py        a ratio and how sure it is
    results.py       ``docs/benchmarks.json``; report.py and chart.py show what is in it
"""
