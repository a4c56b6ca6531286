"""The composition root: builds a broker's parts from its configuration, starts and stops them.

The parts start in the order of their dependencies: data directory, catalog, share state, groups.
The listener accepts connections last, when all other parts have started.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.broker.access.audit import AuditLog
from sharegroup.broker.access.logins import Logins, PendingLogins
from sharegroup.broker.access.quotas import Quotas
from sharegroup.broker.client_telemetry import ClientTelemetry
from sharegroup.broker.clock import Clock, ExpiryClock, SystemClock, sleep_ms
from sharegroup.broker.cluster.catalog import (
    CATALOG_FILE,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from sharegroup.broker.cluster.cleaning import Cleaning
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.producer_ids import ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.authorizer_settings import parse_authorizer
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listeners import (
    Listener,
    metrics_host,
    parse_listeners,
    warn_if_everyone_is_allowed,
)
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.groups.group_log import GroupLog
from sharegroup.broker.groups.on_demand import OnDemand
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.load import jobs
from sharegroup.broker.load.admission import Admission, parse_overrides
from sharegroup.broker.load.descriptors import divide
from sharegroup.broker.load.log_limit import UnservedFeatures
from sharegroup.broker.load.request_counters import RequestCounters
from sharegroup.broker.load.waiting import OfConnection, WaitingRoom
from sharegroup.broker.parts import Node, Parts
from sharegroup.broker.server.sockets import Server, bracketed, budgets_of, listen
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.tls.handshakes import Handshakes
from sharegroup.broker.tls.listeners import TlsListeners
from sharegroup.ids import TopicName
from sharegroup.storage.directory.log_directory import LogDirectory, last_write_ms
from sharegroup.storage.disk.files import Files, RealFiles
from sharegroup.storage.parts import Durability
from sharegroup.storage.sync.syncer import MakeSyncer, Syncer

if TYPE_CHECKING:
    # Imported when there are ACLs, and when a metrics port is configured.
    from sharegroup.broker.access.authorizer import Authorizer
    from sharegroup.broker.metrics.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)

PRODUCER_CHECK_MS = 600_000


class Running(NamedTuple):
    """A broker that accepts connections."""

    parts: Parts
    server: Server
    directory: LogDirectory
    background: asyncio.Task[None]
    metrics: MetricsEndpoint | None
    """None if no metrics port is configured."""
    listeners: str
    """The value of ``listeners`` with the ports that were bound, for a start at the same place."""

    @property
    def bootstrap_servers(self) -> str:
        """The address that the first listener advertises, as ``host:port``."""
        return f"{bracketed(self.parts.node.host)}:{self.parts.node.port}"

    @property
    def cluster_id(self) -> str:
        """The cluster id from the catalog; it is stored in the data directory."""
        return self.parts.topics.catalog.cluster_id

    async def stop(self) -> None:
        """Close every connection, then close the data directory cleanly."""
        if self.metrics is not None:
            await self.metrics.stop()
        self._stop_timers()
        await self.server.stop()
        if self.parts.share.existing is not None:
            # Before the background tasks are cancelled: a letter that is being written is finished,
            # otherwise it would be written again at the next start (ADR 0013).
            await self.parts.share.existing.dead_letters.stop()
        self.background.cancel()
        await asyncio.gather(self.background, return_exceptions=True)
        self.parts.record_jobs.close()
        await self.directory.close()
        log.info("event=stopped syncs=%d", self.directory.sync_rounds)

    async def abandon(self) -> None:
        """Close connections and files without a clean end, as after a crash; for recovery tests."""
        if self.metrics is not None:
            await self.metrics.stop()
        self._stop_timers()
        await self.server.stop()
        self.background.cancel()
        await asyncio.gather(self.background, return_exceptions=True)
        self.parts.record_jobs.close()
        self.directory.abandon()

    def _stop_timers(self) -> None:
        parts = self.parts
        for on_demand in (
            parts.modern_groups.coordinator,
            parts.classic_groups,
            parts.share,
            parts.transactions,
        ):
            if on_demand.existing is not None:
                on_demand.existing.stop()


async def start(
    config: Config,
    *,
    insecure: bool = False,
    clock: Clock | None = None,
    files: Files | None = None,
    syncer: MakeSyncer = Syncer,
    handler_of: HandlerOf | None = None,
    prepares: bool = False,
) -> Running:
    """Start a broker on the running event loop; it accepts connections when this returns.

    ``clock``, ``files`` and ``syncer`` are its access to the machine, and ``handler_of`` returns
    the handler of an API; tests replace them.  With ``prepares`` everything that
    requests need is imported soon after the start (`warm_up`).
    """
    clock = clock or SystemClock()
    listeners = parse_listeners(config, insecure=insecure)
    _report_keys_without_effect(config)
    descriptors = divide(config.server.connections_max)
    admission = _admission(config.server, descriptors.connections_max)
    handshakes = Handshakes(clock, admission, config.server)
    tls = TlsListeners(listeners, config, handshakes)
    files, path = files or RealFiles(), _resolved(config.server.data_directory)
    expiry = ExpiryClock(clock, last_write_ms(files, path))
    directory = _opened(config.server, path, files, expiry, syncer)
    directory.opened.bound(limit=descriptors.idle_files_max, ceiling=descriptors.files_max)
    server = Server(clock, admission, handshakes)
    metrics = None
    try:
        nodes, bound = await listen(server, listeners, tls, config.server)
        parts = await _build(config, clock, expiry, directory, nodes[0], listeners)
        tls.follow(parts.config)
        server.share(budgets_of(parts))
        host = metrics_host(config.server, listeners[0], insecure=insecure)
        metrics = await _serve_metrics(parts, server, directory, host)
        parts.config.on_applied(partial(_limit_hosts, server, parts))
        _limit_hosts(server, parts)
        handlers = OnDemand(lambda: handler_of or _handler_table())
        views, closed = _views(parts, listeners, nodes), partial(_connection_closed, parts)
        await server.serve(views, handlers, closed)
    except BaseException:
        await _close(metrics, server)
        directory.abandon()  # Nothing has been started that needs a clean end.
        raise
    todo = _jobs(parts, directory, tls, handlers if prepares else None)
    work = asyncio.create_task(jobs.run(todo, clock))
    return Running(parts, server, directory, work, metrics, bound)


def _opened(
    config: ServerConfig, path: str, files: Files, expiry: ExpiryClock, syncer: MakeSyncer
) -> LogDirectory:
    """Open the data directory with the limits of the configuration."""
    directory = LogDirectory.open(
        path,
        durability=Durability(config.durability),
        files=files,
        wall_ms=expiry.wall_ms,
        syncer=syncer,
        set_aside_bytes_max=config.set_aside_bytes_max,
    )
    directory.producer_room.limit_to(config.producers_max)
    return directory


async def _close(metrics: MetricsEndpoint | None, server: Server) -> None:
    """Close what listens, and every connection."""
    if metrics is not None:
        await metrics.stop()
    await server.stop()


def _views(parts: Parts, listeners: Iterable[Listener], nodes: Iterable[Node]) -> list[Parts]:
    """Return the parts as the connections of each listener see them."""
    return [
        parts.seen_by(listener.name, node) for listener, node in zip(listeners, nodes, strict=True)
    ]


def _handler_table() -> HandlerOf:
    # Imported with the first connection.
    from sharegroup.broker.server.handler_table import handler_of

    return handler_of


def _admission(config: ServerConfig, connections_max: int) -> Admission:
    """Return the limits on connections, in total and of each address and user."""
    return Admission(
        connections_max,
        host_max=config.connections_per_ip_max,
        overrides=parse_overrides(config.connections_per_ip_overrides),
        user_max=config.user_connections_max,
    )


def _limit_hosts(server: Server, parts: Parts) -> None:
    server.admission.limit_hosts_to(parts.config.server.connections_per_ip_max)
    server.admission.is_within_quota = parts.quotas.admits_connection


def _report_keys_without_effect(config: Config) -> None:
    names = sorted(config.without_effect) if config.given else []
    if names:
        log.warning(
            "event=settings_without_effect count=%d keys=%s reason=%r",
            len(names),
            ",".join(names),
            "see docs/config.md",
        )
        # Imported here: most brokers are started without keys that they do not serve.
        from sharegroup.broker.configuration.kafka_keys import replacements

        for name, reason in replacements(names):
            log.warning("event=setting_replaced key=%s reason=%r", name, reason)


async def run_until(
    stop: asyncio.Event,
    config: Config,
    *,
    insecure: bool,
    ready: Callable[[str, str, str], None],
) -> None:
    """Run a broker until ``stop`` is set.

    ``ready`` is called with the bootstrap address, the cluster id and the data directory.
    """
    running = await start(config, insecure=insecure, prepares=True)
    ready(running.bootstrap_servers, running.cluster_id, config.server.data_directory)
    try:
        await stop.wait()
    finally:
        await running.stop()


async def _build(
    started: Config,
    clock: Clock,
    expiry: ExpiryClock,
    directory: LogDirectory,
    node: Node,
    listeners: Iterable[Listener],
) -> Parts:
    config = LiveConfig(started)
    topics = await _start_topics(config, started, directory)
    waiting = WaitingRoom(clock)
    features = FinalizedFeatures(topics.catalog)
    topics.on_visible(waiting.wake)
    audit = AuditLog(clock)
    parts = Parts(
        node=node,
        config=config,
        features=features,
        clock=clock,
        expiry_clock=expiry,
        topics=topics,
        waiting=waiting,
        producer_ids=ProducerIds(topics),
        groups=GroupLog(CoordinatorLog(topics, clock, CONSUMER_OFFSETS)),
        group_settings=GroupSettings(config, topics.catalog, features),
        requests=RequestCounters(),
        unserved=UnservedFeatures(clock),
        client_telemetry=_client_telemetry(started, topics, clock),
        logins=_logins(started, listeners, topics, clock),
        audit=audit,
        authorizer=_authorizer(started, topics, audit, listeners),
        quotas=_quotas(started, topics, clock),
        # With durability=fsync a settled ticket already means that the records are on disk.
        checkpoint=directory.checkpoint if directory.durability is Durability.OS else None,
    )
    features.on_share_groups_off(lambda: _share_groups_off(parts))
    _load_state(parts)
    await parts.logins.load()
    return parts


def _load_state(parts: Parts) -> None:
    """Read the state of share partitions, groups and transactions, if there is any."""
    if _has_logs(parts, SHARE_GROUP_STATE):
        # Without `agree`, which a call would include: the groups have not been read yet.
        parts.share.make()
    parts.groups.load()
    if parts.share.existing is not None:
        parts.share.existing.groups.start()
    for groups in (parts.modern_groups.coordinator, parts.classic_groups):
        if groups.existing is not None:
            groups.existing.agree()
    if _has_logs(parts, TRANSACTION_STATE):
        parts.transactions()


def _has_logs(parts: Parts, topic: TopicName) -> bool:
    # A log is created by its first use (ADR 0007).
    return any(True for _ in parts.topics.opened(parts.topics.catalog.topic(topic)))


def _client_telemetry(started: Config, topics: Topics, clock: Clock) -> ClientTelemetry:
    percent = started.server.user_limits_percent
    return ClientTelemetry(clock, topics.catalog.client_metrics.all, user_percent=percent)


def _quotas(started: Config, topics: Topics, clock: Clock) -> Quotas:
    percent = started.server.user_limits_percent
    return Quotas(topics.catalog.client_quotas, started.quotas, clock, user_percent=percent)


def _logins(config: Config, listeners: Iterable[Listener], topics: Topics, clock: Clock) -> Logins:
    sasl = config.sasl
    pending = PendingLogins(sasl.unauthenticated_max, host_max=sasl.unauthenticated_per_ip_max)
    with_sasl = [listener for listener in listeners if listener.uses_sasl]
    if not with_sasl:
        return Logins({}, pending)
    # Imported here, because most brokers have no SASL.
    from sharegroup.broker.access.login_settings import logins_of

    return logins_of(config, with_sasl, pending, topics.catalog.scram_credentials, clock)


def _authorizer(
    started: Config, topics: Topics, audit: AuditLog, listeners: Iterable[Listener]
) -> Authorizer | None:
    settings = parse_authorizer(started.server)
    if settings is None:
        return None
    # Imported here, because most brokers have no ACLs.
    from sharegroup.broker.access.authorizer import Authorizer

    warn_if_everyone_is_allowed(settings, listeners)
    return Authorizer(settings, topics.catalog.acls, audit)


async def _start_topics(config: LiveConfig, started: Config, directory: LogDirectory) -> Topics:
    """Open the catalog, apply the broker's settings that it holds, and open the topics."""
    topics = Topics(config, directory, directory.journal(CATALOG_FILE))
    config.apply(*config.tenable(*topics.catalog.broker_settings()))
    await topics.start()
    await _make_internal_topics(topics, started)
    return topics


async def _serve_metrics(
    parts: Parts, server: Server, directory: LogDirectory, host: str
) -> MetricsEndpoint | None:
    """Serve metrics on an address; return None if no metrics port is configured."""
    port = parts.config.server.metrics_port
    if port < 0:
        return None
    # Imported here, because it takes 10 ms of the start and most brokers serve no metrics.
    from sharegroup.broker.metrics.endpoint import MetricsEndpoint

    endpoint = MetricsEndpoint(parts, server, directory)
    await endpoint.listen(host, port)
    return endpoint


def _jobs(
    parts: Parts,
    directory: LogDirectory,
    tls: TlsListeners,
    prepared: OnDemand[HandlerOf] | None,
) -> dict[str, jobs.Job]:
    """Return the background jobs of a broker by name.

    ``prepared`` are the handlers that are imported soon; None for none.
    """
    return {
        "checkpoints": directory.run,
        "directory_watch": directory.watch,
        "journal": parts.topics.keep_journal_short,
        "certificates": tls.watch,
        # By the clock of expiry: a wall clock that jumps ahead must not delete records (ADR 0040).
        "cleaning": Cleaning(parts.config, parts.expiry_clock, parts.topics).run,
        "dead_letters": lambda: _write_dead_letters(parts),
        "state_pruning": lambda: _prune_state(parts),
        "transactional_ids": lambda: _forget_transactional_ids(parts),
        "token_keys": parts.logins.keep_keys,
        "producer_expiry": lambda: _forget_producers(parts),
        "audit": parts.audit.run,
        **(
            {
                "log_limit": lambda: _report_suppressed_lines(parts),
                "preparing": lambda: _prepare_all(parts, prepared()),
            }
            if prepared is not None
            else {}
        ),
    }


async def _write_dead_letters(parts: Parts) -> None:
    share = await parts.share.when_made()
    await share.dead_letters.run()


async def _prune_state(parts: Parts) -> None:
    share = await parts.share.when_made()
    await share.pruning.run()


async def _forget_transactional_ids(parts: Parts) -> None:
    while True:
        await sleep_ms(parts.expiry_clock, parts.config.transactions.id_expiration_check_ms)
        if parts.transactions.existing is not None:
            await parts.transactions.existing.forget_expired()


async def _report_suppressed_lines(parts: Parts) -> None:
    # Imported here because only `sharegroup serve` has a handler with this limit.
    from sharegroup.broker.load.log_limit import LOG_LIMIT

    await LOG_LIMIT.run(parts.clock)


async def _prepare_all(parts: Parts, handler_of: HandlerOf) -> None:
    # Imported after the start, like all that it imports.
    from sharegroup.broker.server.warm_up import prepare_all

    await prepare_all(parts, handler_of)


async def _forget_producers(parts: Parts) -> None:
    while True:
        await sleep_ms(parts.clock, PRODUCER_CHECK_MS)
        unused_since_ms = parts.expiry_clock.wall_ms() - parts.config.server.producer_expiration_ms
        await parts.slices.finish(parts.topics.expire_producers(unused_since_ms))


def _connection_closed(parts: Parts, connection_id: int) -> None:
    """Release what a closed connection held: long polls, joins, sessions and acquired records."""
    parts.slices.drop(connection_id)
    parts.record_jobs.drop(connection_id)
    parts.client_telemetry.connection_closed(connection_id)
    # Before the sessions end: the records that they release would be locked again for fetches of
    # this connection, whose answers nobody reads (spec session-23).
    parts.waiting.give_up(OfConnection(connection_id))
    if parts.fetch_sessions_on_demand.existing is not None:
        parts.fetch_sessions_on_demand.existing.release_connection(connection_id)
    if parts.classic_groups.existing is not None:
        parts.classic_groups.existing.connection_closed(connection_id)
    if parts.share.existing is None:
        return
    # Imported with the parts that it uses (`share_parts`).
    from sharegroup.broker.handlers.share import share_requests

    for closed in parts.share_sessions.release_connection(str(connection_id)):
        parts.share_partitions.counters.sessions_lost += 1
        share_requests.release(parts, closed)


def _share_groups_off(parts: Parts) -> None:
    """End all share sessions and unload all share partitions: ``share.version`` is 0 now."""
    if parts.share.existing is None:
        return
    for key in parts.share_sessions.close_all():
        # Its fetch finds that the session is over, and is answered now and not at its deadline.
        parts.waiting.wake(key)
    for group_id in {live.key.group_id for live in parts.share_partitions}:
        parts.share_partitions.drop_group(group_id)


async def _make_internal_topics(topics: Topics, config: Config) -> None:
    """Create the internal topics, with settings under which no needed record is deleted.

    The topics of offsets and of transactions are compacted; the share coordinator prunes the
    share-state topic itself.
    """
    coordinator = config.coordinator
    await topics.keep_internal(
        CONSUMER_OFFSETS,
        partitions=coordinator.offsets_partitions,
        settings={
            "segment.bytes": str(coordinator.offsets_segment_bytes),
            "cleanup.policy": "compact",
        },
    )
    await topics.keep_internal(
        SHARE_GROUP_STATE,
        partitions=coordinator.state_partitions,
        settings={
            "segment.bytes": str(coordinator.state_segment_bytes),
            "cleanup.policy": "delete",
            "retention.ms": "-1",
        },
    )
    await topics.keep_internal(
        TRANSACTION_STATE,
        partitions=config.transactions.state_partitions,
        settings={
            "segment.bytes": str(config.transactions.state_segment_bytes),
            "cleanup.policy": "compact",
        },
    )


def _resolved(data_directory: str) -> str:
    return os.path.realpath(data_directory)  # A link may stand before the directory, not in it.
