"""What a broker listens on, how much it lets a connection do, and what holds for all of it."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.configuration.config_values import INT_MAX, Kind, key


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Listening, limits per connection, and what holds for the whole broker."""

    listeners: str = key(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "One plain-text listener; port 0 picks a free one.",
        kind=Kind.LIST,
    )
    advertised_host: str = key(
        "sharegroup.advertised.host",
        "",
        "The host name that clients are told to connect to; empty: the listener's.",
    )
    node_id: int = key("node.id", 1, "This broker's id in metadata answers.", low=0, high=INT_MAX)
    log_dirs: str = key(
        "log.dirs", "sharegroup-data", "The data directory; exactly one.", kind=Kind.LIST
    )
    durability: str = key(
        "sharegroup.durability",
        "fsync",
        "When a write is answered: `fsync` after the disk has it, `os` after write(2).",
        choices=("fsync", "os"),
    )
    request_bytes_max: int = key(
        "socket.request.max.bytes", 104_857_600, "The largest request in bytes.", low=1
    )
    connections_max: int = key(
        "max.connections", 2_000, "Connections at a time; more are closed at once.", low=1
    )
    connection_idle_ms: int = key(
        "connections.max.idle.ms",
        600_000,
        "A connection idle this long is closed.",
        kind=Kind.LONG,
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
    metrics_port: int = key(
        "sharegroup.metrics.port",
        -1,
        "Answer `GET /metrics` for Prometheus on this port of the listener's address; 0 picks a "
        "free one, -1 none.",
        low=-1,
        high=65_535,
    )
    fetch_bytes_max: int = key(
        "fetch.max.bytes", 57_671_680, "The most bytes that one fetch answers with.", low=1024
    )
    fetch_sessions_max: int = key(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions at a time.", low=0
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
        "Serve the requests of the share coordinator, 83 to 87, to whoever can connect: they read "
        "and rewrite the delivery state of every group.",
    )
    producer_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        "An idempotent producer that is silent this long is forgotten.",
        low=1,
    )
