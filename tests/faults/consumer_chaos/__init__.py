"""A consumer group of workers while its processes are killed, frozen and replaced.

``python -m tests.faults.consumer_chaos`` (`make chaos`) is the long trial, with a broker that dies,
too; `tests/faults/test_consumer_chaos.py` the short one.

Every process writes what its handlers do into a journal of its own, which survives a ``kill -9``.
Afterwards (`verdict`): every record was finished, no record of a key began before the one before it
was finished somewhere, and within an ownership no key was overtaken or ran twice at a time.
"""
