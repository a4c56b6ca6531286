"""Computes the values of every metric of `families` when a scraper asks for them.

The only stored data are plain numbers that the parts of the broker count anyway.  An answer
may be long: 10,000 share partitions have 120,000 lines.  So it is made in slices of a few
milliseconds, between which other requests are served.  Its numbers are therefore not from one
moment; those of one share partition are.  Values are converted to text at once.  Ten thousand small
objects that live as long as the answer takes would now and then cause a full garbage collection,
which holds the event loop.

A client that can name groups and topics could make the answer as long as it likes.  So only a
limited number have series of their own, the oldest first.  The number of the others is a metric,
too, and sums include all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE, Topic
from sharegroup.broker.load.byte_budgets import ByteBudget
from sharegroup.broker.load.descriptors import limit, open_count
from sharegroup.broker.load.log_limit import LOG_LIMIT
from sharegroup.broker.load.request_counters import Distribution
from sharegroup.broker.metrics import client_values as client_names, families as names
from sharegroup.broker.metrics.client_values import ClientValuesPage, info_labels
from sharegroup.broker.metrics.text import Family, Value, head, label_pairs, lines
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.sockets import Server
from sharegroup.broker.share.dead_letters import DeadLetterCounts
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.breaker import BreakerState
from sharegroup.errors import KafkaStorageError
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.wire.codec.apis import APIS

# Measures the delay of the event loop, which adds to the latency of requests.
#
# A callback that is scheduled ten times a second records how late it runs. A delay is caused by a
# long turn of the loop, by a sync in its thread, or by a lack of processor time for the process.


INTERVAL_SECONDS = 0.1


class LoopLag:
    """Measures the lateness of the event loop, from `start` to `stop`."""

    __slots__ = ("_due", "_timer", "lateness")

    def __init__(self) -> None:
        self.lateness = Distribution()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, on the running event loop."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + INTERVAL_SECONDS
        self._timer = loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Stop measuring; it has no effect before `start`."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.lateness.observe(max(0.0, asyncio.get_running_loop().time() - self._due))
        self.start()


SHARE_PARTITIONS_MAX = 10_000
GROUPS_MAX = 1_000
TOPICS_MAX = 1_000
"""The most share partitions, groups and topics with series of their own."""

SLICE = 50
"""Share partitions, or logs, that are read before the event loop serves others."""

PIECES = 500
"""Texts of one metric that are joined and returned at once."""

Sample = tuple[Family, tuple[str, ...], Value]


class _Row(NamedTuple):
    """The values of one share partition; ``pairs`` are its labels as text."""

    pairs: str
    timed_out: int
    in_flight: int
    runs: int
    batches: int
    records: int
    looks: int
    look_seconds: float
    available: int
    acquired: int
    archiving: int
    delayed: int
    lag: int
    full: int


_OF_ROW: dict[Family, Callable[[_Row], Value]] = {
    names.LOCK_TIMEOUTS: lambda row: row.timed_out,
    names.IN_FLIGHT: lambda row: row.in_flight,
    names.IN_FLIGHT_RUNS: lambda row: row.runs,
    names.BATCH_MESSAGES: lambda row: (row.batches, row.records),
    names.FETCH_LOCK: lambda row: (row.looks, row.look_seconds),
    names.LAG: lambda row: row.lag,
    names.FULL: lambda row: row.full,
}
"""The metrics with one value for each share partition; `names.RECORDS` has several."""


class _Totals:
    """Sums over all share partitions and topics, collected while these are read."""

    __slots__ = ("archiving", "full", "loaded", "log_bytes")

    def __init__(self) -> None:
        self.loaded = self.full = self.archiving = self.log_bytes = 0


class Metrics:
    """The values of all metrics of one broker."""

    __slots__ = (
        "_directory",
        "_loop_lag",
        "_parts",
        "_server",
        "_share_partitions_max",
        "_topics_max",
    )

    def __init__(
        self,
        parts: Parts,
        server: Server,
        directory: LogDirectory,
        loop_lag: LoopLag,
        *,
        share_partitions_max: int = SHARE_PARTITIONS_MAX,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        self._parts = parts
        self._server = server
        self._directory = directory
        self._loop_lag = loop_lag
        self._share_partitions_max = share_partitions_max
        self._topics_max = topics_max

    async def text(self) -> AsyncIterator[str]:
        """Yield the whole answer, piece by piece; the caller gives way to others between pieces."""
        totals = _Totals()
        by_family: dict[Family, list[str]] = {family: [] for family in names.FAMILIES}
        await self._share_partitions(totals, by_family)
        samples = [sample async for sample in self._topics(totals)]
        for family, labels, value in [*samples, *self._samples(totals)]:
            by_family[family].append(lines(family, label_pairs(family.labels, labels), value))
        clients = ClientValuesPage()
        self._parts.client_telemetry.values.expire(now_ms=self._parts.clock.now_ms())
        for _ in clients.collect(self._parts.client_telemetry.values):
            await asyncio.sleep(0)
        for family, texts in by_family.items():
            yield head(family)
            for first in range(0, len(texts), PIECES):
                yield "".join(texts[first : first + PIECES])
        for text in clients.texts():
            yield text

    async def _share_partitions(self, totals: _Totals, by_family: dict[Family, list[str]]) -> None:
        """Read the share partitions in memory; up to the limit, they have series of their own."""
        for number, live in enumerate(self._parts.share_partitions, start=1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            if live.fenced:
                continue  # It was unloaded while other requests were served.
            row = self._row(live)
            totals.loaded += 1
            totals.full += row.full
            totals.archiving += row.archiving
            if totals.loaded <= self._share_partitions_max:
                for family in names.EACH_SHARE_PARTITION:
                    by_family[family].append(_lines_of(family, row))

    def _row(self, live: LiveSharePartition) -> _Row:
        group_id, _, partition = live.key
        counts = live.state.snapshot()
        # Kafka's lag (KIP-1226): offsets that were settled above the start offset do not count.
        settled = counts.start_offset + counts.delivery_complete_count
        return _Row(
            label_pairs(names.FULL.labels, (group_id, live.topic_name, str(partition))),
            timed_out=live.timed_out_count,
            in_flight=counts.end_offset - counts.start_offset,
            runs=counts.run_count,
            batches=live.delivered_batches,
            records=live.delivered_records,
            looks=live.look_count,
            look_seconds=live.look_seconds,
            available=counts.available_count,
            acquired=counts.acquired_count,
            archiving=counts.archiving_count,
            delayed=counts.delayed_count,
            lag=max(0, live.log.high_watermark - settled),
            full=int(live.state.is_full(self._parts.group_settings.limits(group_id))),
        )

    async def _topics(self, totals: _Totals) -> AsyncIterator[Sample]:
        """Yield the values of topics, and sum up the size of all logs."""
        looked_at = 0
        # A copy, because topics may be created and deleted during the pauses.
        for number, topic in enumerate(list(self._parts.topics.catalog.topics())):
            size = offsets = 0
            for log_ in self._parts.topics.opened(topic):
                size += log_.size
                offsets += log_.high_watermark - log_.start_offset
                looked_at += 1
                if looked_at % SLICE == 0:
                    await asyncio.sleep(0)
            totals.log_bytes += size
            if number >= self._topics_max:
                continue
            yield names.TOPIC_LOG_BYTES, (topic.name,), size
            yield names.TOPIC_LOG_OFFSETS, (topic.name,), offsets
            for sample in self._share_requests(topic):
                yield sample

    def _share_requests(self, topic: Topic) -> Iterator[Sample]:
        counters = self._parts.share_partitions.counters.topics.get(topic.topic_id)
        if counters is not None:
            labels = (topic.name,)
            yield names.SHARE_FETCHES, labels, counters.fetch_count
            yield names.SHARE_FETCHES_FAILED, labels, counters.fetch_failed
            yield names.ACKNOWLEDGEMENTS, labels, counters.acknowledge_count
            yield names.ACKNOWLEDGEMENTS_FAILED, labels, counters.acknowledge_failed

    def _samples(self, totals: _Totals) -> Iterator[Sample]:
        """Yield all values whose number does not grow with share partitions and topics."""
        yield from self._requests()
        yield from self._share_groups(totals)
        yield from self._sessions()
        yield from self._coordinators()
        yield from self._logins()
        yield from self._process(totals)
        yield from self._clients()
        yield from self._access()

    def _requests(self) -> Iterator[Sample]:
        for key, counters in self._parts.requests.by_api.items():
            request = (APIS[key].name,)
            yield names.REQUEST_SECONDS, request, counters.seconds
            yield names.REQUEST_LOCAL, request, counters.local_seconds
            yield names.REQUEST_HOLDS, request, counters.hold_count
            yield names.REQUEST_LONGEST_HOLD, request, counters.longest_hold_seconds
            yield names.REQUEST_BYTES, request, counters.request_bytes
            yield names.RESPONSE_BYTES, request, counters.response_bytes
            for error, count in counters.errors.items():
                yield names.REQUEST_ERRORS, (*request, error), count

    def _share_groups(self, totals: _Totals) -> Iterator[Sample]:
        share_partitions, letters = self._parts.share_partitions, self._parts.dead_letters
        counters = share_partitions.counters
        for ack in AcknowledgeType:
            yield names.RECORD_ACKNOWLEDGEMENTS, (ack.name.lower(),), counters.acknowledged[ack]
        yield names.PARTITION_LOAD, (), counters.load_seconds
        for group_id, group in islice(counters.groups.items(), GROUPS_MAX):
            yield names.FETCH_RATIO, (group_id,), group.fetch_ratio
            yield names.ACQUIRE_SECONDS, (group_id,), group.fetch_seconds
        for group_id, counts in islice(letters.counts.items(), GROUPS_MAX):
            yield from _dead_letters(group_id, counts)
        yield names.DEAD_LETTERS_WAITING, (), totals.archiving
        yield names.DEAD_LETTER_PARTITIONS, ("pending",), letters.pending_count
        yield names.DEAD_LETTER_PARTITIONS, ("stalled",), letters.stalled_count
        yield names.SHARE_PARTITIONS_LOADED, ("loaded",), totals.loaded
        yield names.SHARE_PARTITIONS_LOADED, ("full",), totals.full
        orders = share_partitions.key_orders
        yield names.SHARE_PARTITIONS_LOADED, ("keys_full",), orders.full_count if orders else 0
        yield names.KEY_ORDER_RECORDS, (), orders.record_count if orders else 0
        yield from self._stopped_groups()
        yield names.LOCKS_TIMED_OUT, (), counters.timed_out_count
        yield names.LOCK_LATENESS, (), share_partitions.lock_lateness

    def _stopped_groups(self) -> Iterator[Sample]:
        catalog = self._parts.topics.catalog
        for group_id, state in islice(self._parts.share_partitions.breakers, GROUPS_MAX):
            if state is not BreakerState.CLOSED:
                yield names.DELIVERY_STOPPED, (group_id, "breaker"), 1
        # Also without members: a group that was paused and forgotten is to be seen.
        paused = (
            group_id
            for group_id in catalog.groups_with_settings()
            if catalog.group_settings(group_id).get("sharegroup.paused", "").lower() == "true"
        )
        for group_id in islice(paused, GROUPS_MAX):
            yield names.DELIVERY_STOPPED, (group_id, "paused"), 1

    def _sessions(self) -> Iterator[Sample]:
        sessions, counters = self._parts.share_sessions, self._parts.share_partitions.counters
        yield names.SESSION_EVICTIONS, (), counters.sessions_lost
        yield names.SESSION_PARTITIONS, (), sessions.partition_count()
        yield names.SESSIONS_OPEN, (), len(sessions)
        fetch_sessions = self._parts.fetch_sessions
        yield names.SESSIONS_REFUSED, ("share",), sessions.refused_count
        yield names.SESSIONS_REFUSED, ("fetch",), fetch_sessions.refused_count
        yield names.FETCH_SESSIONS_OPEN, (), len(fetch_sessions)
        yield names.FETCH_SESSION_PARTITIONS, (), fetch_sessions.partition_count
        yield names.FETCH_SESSION_EVICTIONS, (), fetch_sessions.evicted_count
        yield names.DELAYED, (), counters.waiting_count
        yield names.DELAYED_WATCHES, (), counters.watch_count
        yield names.DELAYED_EXPIRED, (), counters.waits_expired
        yield names.WAITING, (), len(self._parts.waiting)

    def _transactions(self) -> Iterator[Sample]:
        coordinator = self._parts.transactions.existing
        if coordinator is None:
            return
        states = Counter(known.state for known in coordinator.transactions)
        for state, count in states.items():
            yield client_names.TRANSACTIONAL_IDS, (state.label,), count
        yield client_names.TRANSACTIONS_BYTES, (), coordinator.transactions.size_bytes
        for outcome, count in (
            ("committed", coordinator.ended[True]),
            ("aborted", coordinator.ended[False]),
            ("timed_out", coordinator.aborted_by_timeout),
        ):
            yield client_names.TRANSACTIONS_ENDED, (outcome,), count
        yield client_names.TRANSACTION_MARKERS, (), self._parts.markers().written

    def _logins(self) -> Iterator[Sample]:
        logins = self._parts.logins
        for family, counts in (
            (client_names.LOGINS_SUCCEEDED, logins.succeeded),
            (client_names.LOGINS_RENEWED, logins.renewed),
            (client_names.LOGINS_FAILED, logins.failed),
        ):
            for (listener, mechanism), count in counts.items():
                yield family, (listener, mechanism or "none"), count
        yield client_names.LOGINS_PENDING, (), logins.pending.count
        yield client_names.LOGINS_EVICTED, (), logins.pending.evicted_count
        yield client_names.SESSIONS_EXPIRED, (), logins.expired_count
        scram_count = self._parts.topics.catalog.scram_credentials.count
        yield client_names.SCRAM_CREDENTIALS, (), scram_count
        for outcome, count in (
            ("read", sum(keys.read_count for keys in logins.token_keys)),
            ("failed", sum(keys.failed_count for keys in logins.token_keys)),
        ):
            yield client_names.TOKEN_KEY_READINGS, (outcome,), count

    def _quotas(self) -> Iterator[Sample]:
        quotas = self._parts.quotas
        yield client_names.QUOTA_ENTITIES, (), len(self._parts.topics.catalog.client_quotas)
        yield client_names.QUOTA_METERS, (), quotas.meter_count
        yield client_names.QUOTA_METERS_SHARED, (), quotas.shared_meter_count
        for quota, throttled in quotas.counters.items():
            yield client_names.THROTTLED, (quota.value,), throttled.count
            yield client_names.THROTTLE_SECONDS, (quota.value,), throttled.milliseconds / 1000
        for shared, refused_count in self._parts.user_part_refusals():
            yield client_names.USER_PART_REFUSALS, (shared,), refused_count

    def _coordinators(self) -> Iterator[Sample]:
        shares = Counter(group.state for group in self._parts.share_group_coordinator.list_groups())
        classic = Counter(
            str(group.state) for group in self._parts.classic_group_coordinator.list_groups()
        )
        yield names.GROUPS, ("share",), shares.total()
        modern = Counter(str(group.state) for group in self._parts.modern_groups.list_groups())
        yield names.GROUPS, ("classic",), classic.total()
        yield names.GROUPS, ("consumer",), modern.total()
        for state in ("Empty", "Assigning", "Reconciling", "Stable"):
            yield names.MODERN_GROUP_STATES, (state,), modern[state]
        existing = self._parts.modern_groups.coordinator.existing
        yield names.MODERN_GROUP_BYTES, (), 0 if existing is None else existing.size_bytes
        yield names.MODERN_REBALANCES, (), 0 if existing is None else existing.rebalance_count
        for state in ("Empty", "Stable", "Dead"):
            yield names.GROUP_STATES, (state,), shares[state]
        for state, count in classic.items():
            yield names.CONSUMER_GROUP_STATES, (state,), count
        share_groups = self._parts.share_group_coordinator
        yield names.SHARE_GROUP_BYTES, (), share_groups.size_bytes
        offsets_bytes = self._parts.classic_group_coordinator.offsets_bytes
        yield names.COMMITTED_OFFSETS_BYTES, (), offsets_bytes
        settings_bytes = self._parts.topics.catalog.group_settings_bytes
        yield names.GROUP_SETTINGS_BYTES, (), settings_bytes
        yield names.SHARE_PARTITIONS_INITIALIZED, (), share_groups.partition_count
        yield names.REBALANCES, (), self._parts.share_group_coordinator.rebalance_count
        yield from self._transactions()
        yield from self._quotas()
        coordinator = self._parts.share_coordinator
        yield names.STATE_LOAD, (), coordinator.load_ms / 1000
        yield names.STATE_WRITES, (), coordinator.write_count
        yield names.STATE_WRITE_SECONDS, (), self._parts.share_partitions.counters.write_seconds
        active, failed = self._state_partitions()
        # A state of Kafka's metric; here the topic is read in one call, so no scrape can see it.
        yield names.STATE_PARTITIONS, ("loading",), 0
        yield names.STATE_PARTITIONS, ("active",), active
        yield names.STATE_PARTITIONS, ("failed",), failed
        for partition, offset in self._parts.state_pruning.last_pruned.items():
            yield names.LAST_PRUNED, (SHARE_GROUP_STATE, str(partition)), offset

    def _clients(self) -> Iterator[Sample]:
        telemetry = self._parts.client_telemetry
        for labels in info_labels(telemetry.values):
            yield client_names.CLIENT_INFO, labels, 1
        yield client_names.CLIENT_INSTANCES, (), len(telemetry.instances)
        yield client_names.CLIENT_THROTTLED, (), telemetry.instances.throttled_count
        yield client_names.CLIENT_UNKNOWN, (), telemetry.instances.unknown_count
        yield client_names.CLIENT_VALUES, (), telemetry.values.values_count
        yield client_names.CLIENT_VALUES_DROPPED, (), telemetry.values.dropped_count
        yield client_names.CLIENT_BYTES, (), telemetry.values.size_bytes

    def _access(self) -> Iterator[Sample]:
        audit = self._parts.audit
        yield client_names.ACLS, (), len(self._parts.topics.catalog.acls.acls)
        for listener, count in audit.denials.items():
            yield client_names.DENIALS, (listener,), count
        yield client_names.AUDIT_LINES_SUPPRESSED, (), audit.suppressed_count
        yield client_names.LOG_LINES_SUPPRESSED, (), LOG_LIMIT.suppressed_count

    def _state_partitions(self) -> tuple[int, int]:
        """Count the partitions of the state topic that are writable, and those that are not."""
        active = failed = 0
        for log_ in self._parts.topics.opened(self._parts.topics.catalog.topic(SHARE_GROUP_STATE)):
            try:
                log_.check_writable()
            except KafkaStorageError:
                failed += 1
            else:
                active += 1
        return active, failed

    def _process(self, totals: _Totals) -> Iterator[Sample]:
        server, requests = self._server, self._parts.requests
        yield names.LOOP_LAG, (), self._loop_lag.lateness
        yield names.SYNCS, (), (self._directory.sync_rounds, self._directory.sync_seconds)
        yield names.LOG_BYTES, (), totals.log_bytes
        yield names.CONNECTIONS, (), server.connection_count
        yield names.CONNECTIONS_OPENED, (), server.opened_count
        yield names.CONNECTIONS_REFUSED, (), server.admission.refused_count
        yield names.CONNECTIONS_EVICTED, (), server.admission.evicted_count
        yield names.TLS_PENDING, (), server.handshakes.pending_count
        yield names.TLS_SECONDS, (), server.handshakes.busy_seconds
        for listener in server.tls_listeners:
            yield names.TLS_HANDSHAKES, (listener.name, "completed"), listener.completed_count
            yield names.TLS_HANDSHAKES, (listener.name, "failed"), listener.failed_count
            yield names.TLS_EXPIRES, (listener.name,), listener.expires_seconds
        yield names.BAD_REQUESTS, (), requests.bad_count
        checks = self._parts.share_partitions.batch_checks
        yield names.UNREADABLE_BATCHES, (), checks.unreadable_count
        yield names.UNREADABLE_RECORDS, (), checks.archived_count
        yield names.RECORD_JOBS, (), self._parts.record_jobs.job_count
        yield names.RECORD_JOBS_WAITING, (), self._parts.record_jobs.waiting_count
        yield from _budget("requests", server.budgets.requests)
        server.budgets.answers.refresh()  # Many bytes may have been sent since the last count.
        yield from _budget("answers", server.budgets.answers)
        times = os.times()
        yield names.CPU, (), times.user + times.system
        yield names.SET_ASIDE_BYTES, (), self._directory.set_aside_bytes
        yield names.DIRECTORY_LOST, (), int(bool(self._directory.lost))
        yield names.FENCED_LOGS, (), self._directory.fenced_count
        opened = self._directory.opened
        yield names.DESCRIPTORS, (), open_count()
        yield names.DESCRIPTORS_MAX, (), limit()
        yield names.OPEN_FILES, (), len(opened)
        yield names.OPEN_FILES_MAX, (), opened.ceiling
        yield names.DESCRIPTOR_SHORTAGES, (), opened.shortage_count
        yield names.PRODUCERS, (), self._directory.producer_room.count
        yield names.PRODUCERS_FORGOTTEN, (), self._directory.producer_room.forgotten_count
        groups = max(
            len(self._parts.share_partitions.counters.groups), len(self._parts.dead_letters.counts)
        )
        topics = sum(1 for _ in self._parts.topics.catalog.topics())
        for owner, count, limit_count in (
            ("share_partitions", totals.loaded, self._share_partitions_max),
            ("groups", groups, GROUPS_MAX),
            ("topics", topics, self._topics_max),
        ):
            yield names.LEFT_OUT, (owner,), max(0, count - limit_count)


def _budget(name: str, budget: ByteBudget[Any]) -> Iterator[Sample]:
    labels = (name,)
    yield names.BUDGET_USED, labels, budget.used_bytes
    yield names.BUDGET_LIMIT, labels, budget.bytes_max
    yield names.BUDGET_WAITS, labels, budget.waited_count
    yield names.BUDGET_EVICTIONS, labels, budget.evicted_count


def _dead_letters(group_id: str, counts: DeadLetterCounts) -> Iterator[Sample]:
    labels = (group_id,)
    yield names.DEAD_LETTERS, labels, counts.record_count
    yield names.DEAD_LETTER_WRITES, labels, counts.write_count
    yield names.DEAD_LETTER_FAILURES, labels, counts.failure_count
    yield names.DEAD_LETTERS_NOT_COPIED, labels, counts.not_copied_count
    yield names.DEAD_LETTERS_GIVEN_UP, labels, counts.given_up_count
    yield names.DEAD_LETTERS_REFUSED, labels, counts.refused_count
    yield names.DEAD_LETTERS_THROTTLED, labels, counts.throttled_count


def _lines_of(family: Family, row: _Row) -> str:
    """Return the lines of one metric for a share partition."""
    if family is not names.RECORDS:
        return lines(family, row.pairs, _OF_ROW[family](row))
    return "".join(
        lines(family, f'{row.pairs},state="{state}"', count)
        for state, count in (
            ("available", row.available),
            ("acquired", row.acquired),
            ("archiving", row.archiving),
            ("delayed", row.delayed),
        )
        # A group without delays has no line for them.
        if count or state != "delayed"
    )
