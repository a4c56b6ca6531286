"""``kill -9`` of everything that a Spark query over a share group is made of, under load.

    python -m tests.integration.spark.kills --kills 20 --seed 7 --broker ours

A producer writes known records, a query copies them into a sink, and a trial kills at random
the user's Python, the JVM, an executor, the reader's process, a worker of an executor and the
broker.  Whoever was killed is started again, as a supervisor does, and the query goes on from its
checkpoint::

    Load ──▶ broker ──▶ query (driver ─ JVM ─ reader, workers) ──▶ Sink
                └──────────────── Trial: kill -9 ─────┘             │
                                                     problems(produced, delivered)

In the end every record must be in the sink exactly once.  With ``--broker cluster`` a second query
copies the records into another topic with the streaming sink: there each must be at least once.
"""
