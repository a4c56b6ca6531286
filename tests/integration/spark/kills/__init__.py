"""``kill -9`` of everything that a Spark query over a share group is made of, under load.

    python -m tests.integration.spark.kills --kills 20 --seed 7 --broker ours

A producer writes known records, a query copies them into a sink, and a trial kills at random
the user's Python, the JVM, the reader's process, a worker of the executor and the broker.  Whoever
was killed is started again, as a supervisor does, and the query goes on from its checkpoint::

    Load ──▶ broker ──▶ query (driver ─ JVM ─ reader, workers) ──▶ Sink
                └──────────────── Trial: kill -9 ─────┘             │
                                                     problems(produced, delivered)

In the end every record must be in the sink exactly once.
"""
