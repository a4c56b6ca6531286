"""The records of the share coordinator in ``__share_group_state`` (types 0 and 1).

They are named after Kafka's, with the fields of key and value; offset ranges are half-open here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.delivery.delivery import StateBatch
from sharegroup.ids import SharePartitionKey


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share partition; ``*_timestamp`` are wall-clock milliseconds."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    batches: tuple[StateBatch, ...]


class ShareUpdate(NamedTuple):
    """The changes since the snapshot of the same epoch and the updates after it.

    It is a plain tuple, because every acknowledgement makes one and every start reads them all.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareTombstone:
    """The record that deletes a share partition's state: a snapshot key without a value."""

    key: SharePartitionKey


ShareStateRecord = ShareSnapshot | ShareUpdate | ShareTombstone
Records = tuple[ShareStateRecord, ...]
