"""The worker application of `tests.faults.worker_chaos`, which also writes down refusals.

A worker tells its log which acknowledgements failed: that is the statement which explains why a
record that its handler has finished comes again.
"""

from __future__ import annotations

import logging

from tests.cluster_chaos.worker_lines import FAILED
from tests.faults.worker_chaos.app import app, journal

__all__ = ["app"]


class _Refusals(logging.Handler):
    """Writes a journal line for each warning about acknowledgements."""

    def emit(self, record: logging.LogRecord) -> None:
        if FAILED in str(record.msg) and isinstance(record.args, tuple):
            _, topic, partition, count, first, error = record.args
            place = (str(topic), int(str(partition)), int(str(first)))
            text = type(error).__name__
            journal.write(FAILED, -1, place=place, delivery_count=int(str(count)), error=text)


logging.getLogger("sharegroup.worker.transport.kafka").addHandler(_Refusals())
