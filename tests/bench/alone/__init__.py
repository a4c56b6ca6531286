"""What our broker costs by itself: figures with a limit and no rival (``python -m
tests.bench.alone``)."""
