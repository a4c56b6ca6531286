"""Configuration of the server: listeners, connection limits, and settings of the whole broker."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigType, key
from sharegroup.core.log import producer_room
from sharegroup.core.sessions import fetch_session

FETCH_BYTES_MAX = 4 * 1024 * 1024
"""Kafka's default is 55 MiB, but one read of that size holds the event loop for 30 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Listeners, limits per connection, and settings of the whole broker."""

    listeners: str = key(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "One plain-text listener; port 0 picks a free one.",
        kind=ConfigType.LIST,
    )
    advertised_host: str = key(
        "sharegroup.advertised.host",
        "",
        "The host name that clients are told to connect to; empty: the listener's.",
    )
    node_id: int = key("node.id", 1, "This broker's id in metadata answers.", low=0, high=INT_MAX)
    log_dirs: str = key(
        "log.dirs", "sharegroup-data", "The data directory; exactly one.", kind=ConfigType.LIST
    )
    durability: str = key(
        "sharegroup.durability",
        "fsync",
        "When a write is answered: `fsync` after the disk has it, `os` after write(2).",
        choices=("fsync", "os"),
    )
    set_aside_bytes_max: int = key(
        "sharegroup.set.aside.max.bytes",
        1_073_741_824,
        "Bytes in the folder `set-aside` of the data directory, where the broker puts what it cuts "
        "off damaged files at start; the oldest go first, the newest stays whatever its size.",
        kind=ConfigType.LONG,
        low=0,
    )
    request_bytes_max: int = key(
        "socket.request.max.bytes", 104_857_600, "The largest request in bytes.", low=1
    )
    connections_max: int = key(
        "max.connections",
        2_000,
        "Connections at a time, fewer where the process may not have so many descriptors. When "
        "all are open, a new one takes the place of an idle one, or is closed at once.",
        low=1,
    )
    connections_per_ip_max: int = key(
        "max.connections.per.ip",
        INT_MAX,
        "Connections of one address at a time; more are closed at once.",
        low=0,
    )
    connections_per_ip_overrides: tuple[str, ...] = key(
        "max.connections.per.ip.overrides",
        (),
        "The same for some addresses, as `host:number,...`.",
    )
    connection_idle_ms: int = key(
        "connections.max.idle.ms",
        600_000,
        "A connection idle this long is closed.",
        kind=ConfigType.LONG,
        low=1_000,
    )
    frame_progress_ms: int = key(
        "sharegroup.frame.progress.timeout.ms",
        30_000,
        "A request that is not complete, or an answer that is not taken, after this long "
        "closes its connection.",
        low=100,
    )
    connection_requests_max: int = key(
        "sharegroup.connection.requests.max",
        100,
        "Requests of one connection that may wait for their answers; then reading pauses.",
        low=1,
        high=10_000,
    )
    queued_request_bytes_max: int = key(
        "queued.max.request.bytes",
        125_829_120,
        "Bytes of requests that are being received or wait for their answers, over all "
        "connections; -1: no limit. When more is needed, connections that make no progress are "
        "closed.",
        kind=ConfigType.LONG,
        low=-1,
    )
    answer_bytes_max: int = key(
        "sharegroup.answers.max.bytes",
        134_217_728,
        "Bytes of answers that the clients have not taken yet, over all connections. When more "
        "is needed, connections that take nothing are closed.",
        kind=ConfigType.LONG,
        low=1_048_576,
    )
    connection_answer_bytes_max: int = key(
        "sharegroup.connection.answer.max.bytes",
        67_108_864,
        "Bytes of answers that the client of one connection has not taken yet; with more, its "
        "further requests wait.",
        kind=ConfigType.LONG,
        low=1_048_576,
    )
    metrics_port: int = key(
        "sharegroup.metrics.port",
        -1,
        "Answer `GET /metrics` for Prometheus on this port of the listener's address; 0 picks a "
        "free one, -1 none.",
        low=-1,
        high=65_535,
    )
    decompressed_bytes_max: int = key(
        "sharegroup.decompressed.max.bytes",
        67_108_864,
        "The most bytes that the broker decompresses at a time, for all requests together. A batch "
        "that decompresses to more counts as unreadable. The lookups of one ListOffsets request "
        "decode no more in all.",
        low=1_048_576,
        high=1_073_741_824,
        fixed=True,
    )
    fetch_bytes_max: int = key(
        "fetch.max.bytes",
        FETCH_BYTES_MAX,
        "The most bytes that one fetch answers with; 4 MiB are read in 2 to 3 ms.",
        low=1024,
    )
    fetch_sessions_max: int = key(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions at a time.", low=0
    )
    fetch_session_partitions_max: int = key(
        "sharegroup.fetch.session.partitions.max",
        fetch_session.ALL_PARTITIONS_MAX,
        "Partitions of all fetch sessions; a session without room is answered without a session.",
        low=0,
    )
    group_settings_bytes_max: int = key(
        "sharegroup.group.settings.bytes.max",
        8_388_608,
        "Memory for the settings of all groups, including groups that do not exist.",
        kind=ConfigType.LONG,
        low=0,
    )
    auto_create_topics: bool = key(
        "auto.create.topics.enable", True, "Create a topic when a client first names it."
    )
    delete_topics: bool = key("delete.topic.enable", True, "Let clients delete topics.")
    partitions_default: int = key(
        "num.partitions", 1, "Partitions of a topic that does not say how many.", low=1
    )
    partitions_max: int = key(
        "sharegroup.partitions.max", 20_000, "Partitions of all topics together.", low=1
    )
    share_state_apis: bool = key(
        "sharegroup.share.state.apis.enable",
        False,
        "Serve the requests of the share coordinator, 83 to 87, to every client that can connect: "
        "they read and rewrite the delivery state of every group.",
    )
    producer_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        "An idempotent producer that is silent this long is forgotten.",
        low=1,
    )
    producers_max: int = key(
        "sharegroup.producers.max",
        producer_room.ALL_PRODUCERS_MAX,
        "Idempotent producers that all partitions remember, counted once for each partition; "
        "beyond it those that were silent for longest are forgotten.",
        low=1_000,
    )
