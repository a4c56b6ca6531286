"""Finds the records for which a broker refuses a whole batch, so that it can name them (KIP-467).

These walks run only after a batch was found to be refused, so they need not be fast.
"""

from __future__ import annotations

from sharegroup.wire.batches.batches import NO_TIMESTAMP, BatchHeader, Buffer
from sharegroup.wire.batches.record_walk import SLICE_RECORDS, Walk, WalkStep, read_varint

FAULTS_MAX = 1_000
"""Records of a batch that are named; others are refused without being named."""


def records_without_key(body: Buffer, header: BatchHeader) -> Walk[list[int]]:
    """Return the positions in the batch of the first `FAULTS_MAX` records that have no key."""
    found: list[int] = []
    position = 0
    for index in range(header.record_count):
        length, begin = read_varint(body, position)
        _, at = read_varint(body, begin + 1)
        _, at = read_varint(body, at)
        if read_varint(body, at)[0] < 0:
            found.append(index)
            if len(found) == FAULTS_MAX:
                return found
        position = begin + length
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield WalkStep.PAUSE
    return found


def records_out_of_time(
    body: Buffer, header: BatchHeader, *, earliest: int, latest: int
) -> Walk[list[tuple[int, int]]]:
    """Return position and timestamp of the first `FAULTS_MAX` records that are too old or new.

    A record without a timestamp is accepted.
    """
    found: list[tuple[int, int]] = []
    position = 0
    for index in range(header.record_count):
        length, begin = read_varint(body, position)
        timestamp = header.first_timestamp + read_varint(body, begin + 1)[0]
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            found.append((index, timestamp))
            if len(found) == FAULTS_MAX:
                return found
        position = begin + length
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield WalkStep.PAUSE
    return found
