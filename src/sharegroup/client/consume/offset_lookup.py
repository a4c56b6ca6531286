"""Looks up the positions of partitions: committed offsets, and offsets by ``auto_offset_reset``.

    COMMITTED --> the group's committed offset --> position
                     '-- there is none --> RESET --> earliest, latest, by time --> position
                                             '-- none --> an error for the application

A seek, or the end of an assignment, cancels the lookup of a partition: the answer is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from sharegroup.client.consume.partition_states import (
    COMMITTED,
    NO_EPOCH,
    RESET,
    Lookup,
    PartitionState,
    PartitionStates,
)
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec, list_offsets
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.refusals import may_pass
from sharegroup.client.records import NoOffsetForPartition, OffsetAndMetadata, TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)

ReadCommitted = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]
]


class OffsetLookup:
    """Gives a position to every partition that has none, while `run` runs."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        states: PartitionStates,
        *,
        read_committed: ReadCommitted,
        changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._states = states
        self._read_committed = read_committed
        self._changed = changed
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for partitions without a position."""
        self._wake.set()

    async def run(self) -> None:
        """Look up positions as they are needed; retry after errors."""
        backoff = self._cluster.backoff()
        while True:
            self._wake.clear()
            states = [
                state
                for state in self._states
                if state.lookup is not None and state.failure is None and not state.is_revoked
            ]
            if not states:
                await self._wake.wait()
                continue
            try:
                is_complete = await self._look_up(states)
            except KafkaError as error:
                is_complete = False
                self._failed(states, error)
            if is_complete:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _failed(self, states: Collection[PartitionState], error: KafkaError) -> None:
        log.info("event=position.lookup_failed group=%s error=%s", self._config.group_id, error)
        if not may_pass(error):
            for state in states:
                state.failure = error
            self._changed()

    async def _look_up(self, states: Collection[PartitionState]) -> bool:
        """Look up the positions once; return whether every partition got an answer."""
        # As it is asked for: a seek or another lookup during the requests wins over their answers.
        lookups = {state: state.lookup for state in states}
        of_group = [state for state in states if state.lookup == COMMITTED]
        if of_group:
            committed = await self._read_committed([state.where for state in of_group])
            for state in of_group:
                if not state.is_current or state.lookup != COMMITTED:
                    continue
                group_offset = committed.get(state.where)
                if group_offset is None:
                    # Both, because `_look_up_specs` takes a difference between them for a seek of
                    # the application.
                    state.lookup = lookups[state] = RESET
                else:
                    state.seek(group_offset.offset, _epoch_of(group_offset))
                    lookups[state] = None
        specs = {
            state.where: spec
            for state in states
            if state.is_current and (spec := self._spec_of(state)) is not None
        }
        is_complete = True
        if specs:
            is_complete = await self._look_up_specs(states, lookups, specs)
        self._changed()
        return is_complete

    def _spec_of(self, state: PartitionState) -> int | None:
        """Return the spec for ListOffsets; None if the partition needs none or has failed."""
        lookup = state.lookup
        if lookup is None or isinstance(lookup, int):
            return lookup
        policy, age_ms = self._config.auto_offset_reset, self._config.reset_age_ms
        if age_ms is not None:
            return max(0, round(time.time() * 1000) - age_ms)
        if policy != "none":
            return OffsetSpec.EARLIEST if policy == "earliest" else OffsetSpec.LATEST
        state.failure = NoOffsetForPartition(
            f"topic {state.where.topic!r} partition {state.where.partition}: group "
            f"{self._config.group_id!r} has no committed offset, and auto_offset_reset is 'none'; "
            "seek to an offset"
        )
        return None

    async def _look_up_specs(
        self,
        states: Collection[PartitionState],
        lookups: Mapping[PartitionState, Lookup | None],
        specs: Mapping[TopicPartition, int],
    ) -> bool:
        isolation = int(self._config.reads_committed)
        listed = await list_offsets(self._cluster, specs, isolation_level=isolation)
        beyond = [
            where
            for where, entry in listed.items()
            if isinstance(entry, ListedOffset) and entry.offset < 0
        ]
        if beyond:  # No record is as new as the timestamp: the position is the end.
            ends = await list_offsets(
                self._cluster,
                dict.fromkeys(beyond, int(OffsetSpec.LATEST)),
                isolation_level=isolation,
            )
            listed = {**listed, **ends}
        is_complete = True
        for state in states:
            entry = listed.get(state.where)
            if entry is None or not state.is_current or state.lookup != lookups[state]:
                continue
            if isinstance(entry, KafkaError):
                is_complete = False
                self._failed([state], entry)
            else:
                state.seek(entry.offset, _epoch_of(entry))
                log.info(
                    "event=position.set topic=%s partition=%s offset=%s", *state.where, entry.offset
                )
        return is_complete


def _epoch_of(offset: OffsetAndMetadata | ListedOffset) -> int:
    return NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch
