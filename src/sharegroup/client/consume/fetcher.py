"""Fetches records ahead, from every broker that leads an assigned partition.

    states --> entries of one broker --> session --> Fetch --> answer --> states, wake the poll
                     ^                                           |
                     '------- at once, while there is room ------'

One request at a time is under way to each broker, and the next one follows at once, while the
application works on the records.  A partition of which enough records wait is left out.  The
others must not hold up its next fetch, so the broker does not wait for their records then.

The leader epochs of positions show truncations: a request names the epoch of the last record
before its offset, and the leader answers where its log diverges (KIP-595; a separate
OffsetForLeaderEpoch request is not needed).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from kio.schema.fetch.v18.request import FetchRequest
from kio.static.primitive import i8, i32, i32Timedelta

from sharegroup.client.consume.fetch_session import (
    FetchEntry,
    FetchSession,
    FetchSessionRequest,
    PartitionKey,
)
from sharegroup.client.consume.fetched_records import FetchedRecords
from sharegroup.client.consume.partition_states import (
    NO_REPLICA,
    RESET,
    PartitionState,
    PartitionStates,
)
from sharegroup.client.fetch.aborted_transactions import AbortedTransaction
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.net.cluster import NO_LEADER, Cluster, ConnectionPurpose
from sharegroup.client.net.refusals import may_pass, meaning, refused
from sharegroup.client.records import LogTruncation, OffsetAndMetadata
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.client.together import event_within, together
from sharegroup.errors import (
    NONE,
    CorruptMessage,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    NoAnswer,
    OffsetOutOfRange,
)
from sharegroup.ids import TopicId

log = logging.getLogger(__name__)

SESSION_ERRORS = (
    FetchSessionIdNotFound.code,
    InvalidFetchSessionEpoch.code,
    FetchSessionTopicIdError.code,
)
CROWDED_PAUSE_SECONDS = 0.05
"""Pause after an empty answer if partitions of the broker were left out, because they are full."""
IN_VAIN_MAX = 3
"""Number of immediate empty answers in a row without a pause; usually a broker parks a fetch."""
CLOSE_SECONDS = 1.0
"""Time for ending the fetch sessions when the consumer is closed."""


class Fetcher:
    """The fetches of one consumer: a task for each broker that leads assigned partitions."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        states: PartitionStates,
        *,
        changed: Callable[[], None],
        topics_outdated: Callable[[], None],
        metrics: ConsumerMetrics,
    ) -> None:
        self.cluster = cluster
        self.config = config
        self.states = states
        self.changed = changed
        self._topics_outdated = topics_outdated
        self.metrics = metrics
        self._nodes: dict[int, NodeFetches] = {}

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start tasks for brokers that have none yet; return these tasks."""
        led = {node_id for state in self.states if (node_id := self.node_of(state)) != NO_LEADER}
        started = []
        for node_id in led - self._nodes.keys():
            node = self._nodes[node_id] = NodeFetches(self, node_id)
            started.append(tasks.create_task(node.run(), name=f"fetches of node {node_id}"))
        return started

    def wake(self) -> None:
        """Look for partitions to fetch: there is room, or a position or a leader has changed."""
        for node in self._nodes.values():
            node.wake()

    def node_of(self, state: PartitionState) -> int:
        """Return the broker to fetch a partition from: its leader, or the follower it named."""
        if state.replica != NO_REPLICA:
            if time.monotonic() < state.replica_until and state.replica in self.cluster.nodes:
                return state.replica
            state.replica = NO_REPLICA
        topic = self.cluster.known_topic(state.where.topic)
        if topic is None:
            self._topics_outdated()
            return NO_LEADER
        return topic.leader_of(state.where.partition)

    def is_unplaced(self, state: PartitionState) -> bool:
        """Whether a partition has no position, no known leader, or a broker without a task."""
        return state.lookup is not None or self.node_of(state) not in self._nodes

    def made_again(self, state: PartitionState, topic_id: TopicId) -> None:
        """Reset a position in a topic that was deleted: another topic has its name now.

        A position is only an offset, and the new topic may have grown past it.
        """
        if state.fetched:
            return  # The records that were fetched before are handed out first.
        self.reset(
            state,
            OffsetOutOfRange(
                f"topic {state.where.topic!r} partition {state.where.partition}: offset "
                f"{state.position} is of a topic that was deleted (id {state.topic_id}); the topic "
                f"that has its name now (id {topic_id}) has other records; seek to an offset of it"
            ),
        )
        self.changed()

    def reset(self, state: PartitionState, error: OffsetOutOfRange) -> None:
        """Set the position by ``auto_offset_reset``, or report the error to the application."""
        policy = self.config.auto_offset_reset
        if policy == "none":
            state.failure = error
            return
        log.warning(
            "event=position.reset topic=%s partition=%s offset=%s reason='%s' action='the position "
            "is set by auto_offset_reset=%s'",
            *state.where,
            state.position,
            error,
            policy,
        )
        state.look_up(RESET)

    async def end_sessions(self) -> None:
        """Tell the brokers that the fetch sessions are over; failures do not matter."""
        ending = [node.end_session() for node in self._nodes.values()]
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await together(ending)
        except TimeoutError:
            log.debug("event=fetch.session_end_timeout client=%s", self.config.client_id)


class NodeFetches:
    """The fetches from one broker."""

    def __init__(self, fetcher: Fetcher, node_id: int) -> None:
        self._fetcher = fetcher
        self._node_id = node_id
        self._session = FetchSession()
        self._wake = asyncio.Event()
        self._backoff = fetcher.cluster.backoff()

    def wake(self) -> None:
        """Look again for partitions to fetch."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch while there are partitions to fetch from this broker; otherwise wait."""
        in_vain = 0
        while True:
            self._wake.clear()
            entries, is_crowded = self._wanted()
            if not entries:
                await self._wake.wait()
                continue
            asked_at = time.monotonic()
            try:
                brought = await self._fetch(entries, waits=not is_crowded)
            except KafkaError as error:
                self._failed(entries, error)
                await asyncio.sleep(self._backoff.next_ms() / 1000)
                continue
            waited_ms = (time.monotonic() - asked_at) * 1000
            is_early = waited_ms < self._fetcher.config.fetch_max_wait_ms / 2
            in_vain = in_vain + 1 if is_early and not brought else 0
            if brought is None:
                await asyncio.sleep(self._backoff.next_ms() / 1000)
            elif is_crowded and not brought:
                await event_within(self._wake, CROWDED_PAUSE_SECONDS)
            elif in_vain > IN_VAIN_MAX:
                await event_within(self._wake, self._backoff.next_ms() / 1000)

    async def end_session(self) -> None:
        """End the fetch session, if there is one."""
        ending = self._session.closing_request()
        if ending is None:
            return
        try:
            # Not the connection for records, where a parked fetch would hold this request up.
            connection = await self._fetcher.cluster.connection(
                self._node_id, ConnectionPurpose.CONTROL
            )
            await connection.request(self._message(ending, waits=False))
        except KafkaError as error:
            # The broker drops the session by itself when it needs the room.
            log.debug("event=fetch.session_end_failed node=%s error=%r", self._node_id, error)

    def _wanted(self) -> tuple[dict[PartitionKey, tuple[PartitionState, FetchEntry]], bool]:
        """Return the partitions to fetch from this broker, and whether some were left out."""
        fetcher, states = self._fetcher, self._fetcher.states
        entries: dict[PartitionKey, tuple[PartitionState, FetchEntry]] = {}
        is_crowded = False
        for state in states:
            if not states.is_fetchable(state) or fetcher.node_of(state) != self._node_id:
                continue
            if states.is_full(state):
                is_crowded = True
                continue
            topic = fetcher.cluster.last_known_topic(state.where.topic)
            # Fetch names topics by id. A topic without one is from metadata of a broker that is too
            # old for ids.
            if topic is None or topic.topic_id is None:
                continue
            if state.topic_id not in (None, topic.topic_id):
                fetcher.made_again(state, topic.topic_id)
                continue
            entries[topic.topic_id, state.where.partition] = (
                state,
                FetchEntry(
                    state.fetch_offset,
                    topic.leader_epoch_of(state.where.partition),
                    state.fetch_epoch,
                    fetcher.config.max_partition_fetch_bytes,
                ),
            )
        return entries, is_crowded

    async def _fetch(
        self, entries: Mapping[PartitionKey, tuple[PartitionState, FetchEntry]], *, waits: bool
    ) -> bool | None:
        """Send one request; return whether it brought records, or None to pause after an error."""
        fetcher = self._fetcher
        request = self._session.request({key: entry for key, (_, entry) in entries.items()})
        sent_at = time.monotonic()
        try:
            connection = await fetcher.cluster.connection(self._node_id, ConnectionPurpose.RECORDS)
            response = await connection.request(
                self._message(request, waits=waits),
                # The broker may park the fetch for all of `fetch_max_wait_ms` before it answers.
                timeout_ms=fetcher.config.request_timeout_ms + fetcher.config.fetch_max_wait_ms,
            )
        except BaseException:
            # Also after a cancellation: the broker may have counted the request, so its epoch is
            # unknown.
            self._session.lost()
            raise
        code = int(response.error_code)
        if code in SESSION_ERRORS:
            self._session.refused(code)
            return None
        if code != NONE:
            # The broker may not have noted what this request named, and would never fetch it.
            self._session.refused(code)
            raise refused(code, None, operation="READ", node=self._node_id)
        self._session.answered(int(response.session_id))
        brought, is_failed = self._take_in(entries, response)
        fetcher.metrics.fetched(
            time.monotonic() - sent_at,
            sum(map(len, _records(response))),
            throttle_ms=response.throttle_time.total_seconds() * 1000,
        )
        if is_failed:
            return None
        self._backoff.reset()
        return brought

    def _message(self, request: FetchSessionRequest, *, waits: bool) -> FetchRequest:
        config = self._fetcher.config
        wait_ms = config.fetch_max_wait_ms if waits else 0
        return FetchRequest(
            max_wait=i32Timedelta.parse(timedelta(milliseconds=wait_ms)),
            min_bytes=i32(config.fetch_min_bytes if waits else 0),
            max_bytes=i32(config.fetch_max_bytes),
            isolation_level=i8(int(config.reads_committed)),
            session_id=i32(request.session_id),
            session_epoch=i32(request.session_epoch),
            topics=request.topics,
            forgotten_topics_data=request.forgotten,
            rack_id=config.client_rack or "",
        )

    def _take_in(
        self, entries: Mapping[PartitionKey, tuple[PartitionState, FetchEntry]], response: Any
    ) -> tuple[bool, bool]:
        """Process the answer; return whether it had records, and whether a partition failed."""
        brought = is_failed = False
        for topic in response.responses:
            for answer in topic.partitions:
                state, entry = entries.get((topic.topic_id, answer.partition_index), (None, None))
                # Not asked for: a broker must not be able to make this client hold more records.
                if state is None or entry is None:
                    continue
                if not state.is_current or state.fetch_offset != entry.offset:
                    continue  # Taken away, or a seek has moved the position meanwhile.
                # `look_up` takes the position away, but leaves the fetch offset.
                if state.position is None:
                    continue
                try:
                    brought = self._take_in_partition(state, answer) or brought
                    # A truncation sets another position, from which nothing was fetched yet.
                    if not answer.diverging_epoch.end_offset >= 0:
                        state.topic_id = topic.topic_id
                except KafkaError as error:
                    self._partition_failed(state, error)
                    is_failed = True
        if brought or is_failed:
            self._fetcher.changed()
        return brought, is_failed

    def _take_in_partition(self, state: PartitionState, answer: Any) -> bool:
        config = self._fetcher.config
        where = state.where
        if answer.error_code != NONE:
            raise refused(
                answer.error_code,
                f"topic {where.topic!r} partition {where.partition} offset {state.fetch_offset}: "
                f"node {self._node_id}: {meaning(answer.error_code)}",
                operation="READ",
                principal=self._fetcher.cluster.principal,
                topic=where.topic,
            )
        state.high_watermark = int(answer.high_watermark)
        state.log_start_offset = int(answer.log_start_offset)
        if config.reads_committed:
            state.last_stable_offset = int(answer.last_stable_offset)
        if answer.diverging_epoch.end_offset >= 0:
            diverging = answer.diverging_epoch
            self._truncated(state, int(diverging.end_offset), int(diverging.epoch))
            return False
        if int(answer.preferred_read_replica) != NO_REPLICA:
            state.replica = int(answer.preferred_read_replica)
            # KIP-392; Java's `FetchCollector` keeps the replica as long.
            state.replica_until = time.monotonic() + config.metadata_max_age_ms / 1000
            self._fetcher.changed()
            return False
        if not answer.records:
            return False
        aborted = tuple(
            AbortedTransaction(int(transaction.producer_id), int(transaction.first_offset))
            for transaction in answer.aborted_transactions or ()
        )
        fetched = FetchedRecords(
            where,
            state.fetch_offset,
            answer.records,
            aborted if config.reads_committed else (),
            decompressed_bytes_max=config.decompressed_bytes_max,
        )
        if fetched.is_empty:
            return False
        self._fetcher.states.add(state, fetched)
        return True

    def _truncated(self, state: PartitionState, end_offset: int, epoch: int) -> None:
        """Go back to the offset from which on the leader's log differs from the records fetched.

        There the leader's records of ``epoch``, the last one that both may have, end.  Raises
        LogTruncation if records are lost and ``auto_offset_reset`` is ``none``.
        """
        assert state.position is not None, "a partition without position is not fetched"
        if state.replica != NO_REPLICA:
            state.replica = NO_REPLICA  # The log of a follower proves nothing: ask the leader.
        elif end_offset >= state.position:
            # Only records that nobody has got are gone.  The leader does not know a later epoch.
            state.seek(state.position, min(state.epoch, epoch))
        else:
            error = LogTruncation(
                f"topic {state.where.topic!r} partition {state.where.partition}: the leader's log "
                f"differs from offset {end_offset} on from the records fetched up to offset "
                f"{state.fetch_offset} in leader epoch {state.fetch_epoch}; records were lost, and "
                f"others may have taken their offsets; seek to offset {end_offset} to read those",
                state.where,
                OffsetAndMetadata(end_offset, leader_epoch=epoch),
            )
            if self._fetcher.config.auto_offset_reset == "none":
                # The position stays before the lost records until the application has decided.
                state.refetch()
                raise error
            log.warning(
                "event=position.truncated reason='%s' action='reading goes on there'", error
            )
            state.seek(end_offset, epoch)
        self._fetcher.changed()

    def _partition_failed(self, state: PartitionState, error: KafkaError) -> None:
        """Find another leader, reset the position, or report the error to the application."""
        fetcher = self._fetcher
        log.info("event=fetch.failed node=%s error=%s", self._node_id, error)
        if state.replica != NO_REPLICA:
            # A follower may lag behind, so the leader is asked before anything is concluded.
            state.replica = NO_REPLICA
            return
        # Even for OFFSET_OUT_OF_RANGE, which a leader that has been replaced answers, too.
        fetcher.cluster.outdate(state.where.topic)
        if isinstance(error, OffsetOutOfRange):
            # The records that were fetched before are handed out first.
            if not state.fetched:
                fetcher.reset(state, error)
        # Kafka's table of errors calls it retriable, but Java's `FetchCollector` reports it, too.
        elif isinstance(error, CorruptMessage) or not may_pass(error):
            state.failure = error

    def _failed(
        self, entries: Mapping[PartitionKey, tuple[PartitionState, FetchEntry]], error: KafkaError
    ) -> None:
        """Note that the broker could not be reached or refused the whole request."""
        fetcher = self._fetcher
        log.info("event=fetch.failed node=%s error=%s", self._node_id, error)
        if isinstance(error, NoAnswer):
            fetcher.cluster.doubt(self._node_id)
        for state, _ in entries.values():
            state.replica = NO_REPLICA
            fetcher.cluster.outdate(state.where.topic)
            if not error.retriable:
                state.failure = error
        fetcher.changed()


def _records(response: Any) -> list[Any]:
    return [answer.records or b"" for topic in response.responses for answer in topic.partitions]
