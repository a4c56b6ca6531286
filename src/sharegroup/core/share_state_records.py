"""The records of the share coordinator, as ``__share_group_state`` holds them (types 0 and 1).

Named after Kafka's, with the fields of key and value; offsets are half-open ranges here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.delivery import StateBatch
from sharegroup.ids import SharePartitionKey


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """All that is known of a share partition; ``*_timestamp`` are wall clock milliseconds."""

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
    """What changed since the snapshot of the same epoch and the updates after it.

    A plain tuple, because every acknowledgement makes one and every start reads them all.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareTombstone:
    """The share partition is forgotten: a snapshot key without a value."""

    key: SharePartitionKey


ShareStateRecord = ShareSnapshot | ShareUpdate | ShareTombstone
Records = tuple[ShareStateRecord, ...]
