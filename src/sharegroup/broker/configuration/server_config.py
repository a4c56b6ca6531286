"""Configuration of the server: listeners, connection limits, and settings of the whole broker."""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigPart, ConfigType, key
from sharegroup.core.log import producer_room
from sharegroup.core.sessions import user_part as session_sizes
from sharegroup.errors import InvalidConfig

FETCH_BYTES_MAX = 4 * 1024 * 1024
"""Kafka's default is 55 MiB, but one read of that size holds the event loop for 30 ms."""


class ServerConfig(ConfigPart):
    """Listeners, limits per connection, and settings of the whole broker."""

    listeners: str = key(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses of the listeners, as `NAME://host:port,...`. Port 0 selects a free "
        "port; without a host, a listener accepts connections to every address. Listeners of "
        "controllers are not opened.",
        kind=ConfigType.LIST,
    )
    advertised_listeners: str | None = key(
        "advertised.listeners",
        None,
        "Addresses to which clients connect, as `NAME://host:port,...`, each for the listener of "
        "that name. Port 0 stands for the port of the listener. A listener that is not named "
        "advertises its own address.",
        kind=ConfigType.LIST,
    )
    advertised_host: str = key(
        "sharegroup.advertised.host",
        "",
        "Host name to which clients connect, for listeners that `advertised.listeners` does not "
        "name; empty: the host of the listener.",
    )
    security_protocols: str = key(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener, as `NAME:PROTOCOL,...`: PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listeners: tuple[str, ...] = key(
        "controller.listener.names",
        (),
        "Names of listeners for controllers. The broker is its own controller, so these are not "
        "opened; `CONTROLLER` is always one of them.",
    )
    node_id: int = key(
        "node.id", 1, "Id of this broker in metadata responses.", low=0, high=INT_MAX
    )
    broker_id: int = key(
        "broker.id", -1, "Id of this broker, if `node.id` is unset.", low=-1, high=INT_MAX
    )
    rack: str | None = key(
        "broker.rack", None, "Rack of this broker in metadata responses; unset: none."
    )
    log_dirs: str = key(
        "log.dirs", "sharegroup-data", "Data directory; exactly one.", kind=ConfigType.LIST
    )
    log_dir: str = key(
        "log.dir",
        "sharegroup-data",
        "Data directory, if `log.dirs` is unset.",
        kind=ConfigType.LIST,
    )
    durability: str = key(
        "sharegroup.durability",
        "fsync",
        "When a write is acknowledged: `fsync` after it is on disk, `os` after write(2).",
        choices=("fsync", "os"),
    )
    set_aside_bytes_max: int = key(
        "sharegroup.set.aside.max.bytes",
        1_073_741_824,
        "Maximum size of the folder `set-aside` of the data directory. At start, the broker moves "
        "bytes to it that it cuts off damaged files. The oldest entries are deleted first; the "
        "newest entry is kept regardless of its size.",
        kind=ConfigType.LONG,
        low=0,
    )
    request_bytes_max: int = key(
        "socket.request.max.bytes", 104_857_600, "Maximum size of a request.", low=1
    )
    connections_max: int = key(
        "max.connections",
        2_000,
        "Maximum number of open connections; lower if the process may not open that many file "
        "descriptors. At the limit, a new connection replaces an idle one or is closed "
        "immediately.",
        low=1,
    )
    connections_per_ip_max: int = key(
        "max.connections.per.ip",
        INT_MAX,
        "Maximum number of open connections from one address; more are closed immediately.",
        low=0,
        live=True,
    )
    connections_per_ip_overrides: tuple[str, ...] = key(
        "max.connections.per.ip.overrides",
        (),
        "Maximum number of open connections for specific addresses, as `host:number,...`.",
        kind=ConfigType.STRING,
    )
    user_connections_max: int = key(
        "sharegroup.user.connections.max",
        1_000,
        "Maximum number of open connections of one user after their logins; more are closed "
        "immediately.",
        low=1,
    )
    user_bytes_percent: int = key(
        "sharegroup.user.bytes.percent",
        50,
        "Part of the memory for requests and of that for answers that the connections of one user "
        "may use together. Connections without a login belong to no user.",
        low=1,
        high=100,
    )
    user_limits_percent: int = key(
        "sharegroup.user.limits.percent",
        50,
        "Part that one user may hold of each of the limits for all users: sessions, groups, group "
        "settings, committed offsets, transactional ids, partitions, client ids with quotas, "
        "batches that wait to be checked. It applies to users whose rights an authorizer limits, "
        "so not to super users. 100: a user may hold everything.",
        low=1,
        high=100,
    )
    connection_idle_ms: int = key(
        "connections.max.idle.ms",
        600_000,
        "Time without a request after which a connection is closed.",
        kind=ConfigType.LONG,
        low=1_000,
    )
    frame_progress_ms: int = key(
        "sharegroup.frame.progress.timeout.ms",
        30_000,
        "Time after which a connection is closed if a request is incomplete or a response has not "
        "been read.",
        low=100,
    )
    handshake_ms: int = key(
        "sharegroup.tls.handshake.timeout.ms",
        10_000,
        "Time after which a connection is closed if its TLS handshake is not complete.",
        low=100,
    )
    handshakes_max: int = key(
        "sharegroup.tls.handshakes.max",
        512,
        "Maximum number of connections whose TLS handshake is not complete. At the limit, a new "
        "connection replaces the oldest one of the address that has most of them, or is closed "
        "immediately.",
        low=1,
    )
    handshakes_per_ip_max: int = key(
        "sharegroup.tls.handshakes.per.ip.max",
        128,
        "Maximum number of connections from one address whose TLS handshake is not complete.",
        low=1,
    )
    connection_requests_max: int = key(
        "sharegroup.connection.requests.max",
        100,
        "Maximum number of requests of one connection that wait for their responses; at the "
        "limit, the broker pauses reading from the connection.",
        low=1,
        high=10_000,
    )
    queued_request_bytes_max: int = key(
        "queued.max.request.bytes",
        100_663_296,
        "Maximum size of the requests of all connections that are being received or wait for "
        "their responses; -1: no limit. If more is needed, connections that make no progress are "
        "closed.",
        kind=ConfigType.LONG,
        low=-1,
    )
    answer_bytes_max: int = key(
        "sharegroup.answers.max.bytes",
        134_217_728,
        "Maximum size of the responses of all connections that clients have not read yet. If more "
        "is needed, connections that read nothing are closed.",
        kind=ConfigType.LONG,
        low=1_048_576,
    )
    connection_answer_bytes_max: int = key(
        "sharegroup.connection.answer.max.bytes",
        67_108_864,
        "Maximum size of the responses of one connection that the client has not read yet; above "
        "it, further requests of the connection wait.",
        kind=ConfigType.LONG,
        low=1_048_576,
    )
    telemetry_bytes_max: int = key(
        "telemetry.max.bytes",
        1_048_576,
        "Maximum size of the metrics that a client pushes at once (KIP-714), compressed and "
        "decompressed.",
        low=1,
        high=8_388_608,
    )
    metrics_port: int = key(
        "sharegroup.metrics.port",
        -1,
        "Port of `GET /metrics` for Prometheus on the address `sharegroup.metrics.host`; 0: a free "
        "port, -1: no metrics.",
        low=-1,
        high=65_535,
    )
    metrics_host: str = key(
        "sharegroup.metrics.host",
        "",
        "Address of the metrics port, which has neither TLS nor a password. Empty: the address of "
        "the first listener if only this machine reaches that or the broker runs with "
        "`--insecure`, otherwise 127.0.0.1.",
    )
    decompressed_bytes_max: int = key(
        "sharegroup.decompressed.max.bytes",
        67_108_864,
        "Maximum number of bytes that the broker decompresses at a time, for all requests "
        "together. A batch that decompresses to more is checked in pieces for share groups, and "
        "skipped by lookups. All lookups of one ListOffsets request together decode no more "
        "than this.",
        low=1_048_576,
        high=1_073_741_824,
        fixed=True,
    )
    fetch_bytes_max: int = key(
        "fetch.max.bytes",
        FETCH_BYTES_MAX,
        "Maximum size of the records in a fetch response; reading 4 MiB takes 2 to 3 ms.",
        low=1024,
    )
    fetch_sessions_max: int = key(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "Maximum number of fetch sessions.",
        low=0,
    )
    fetch_session_partitions_max: int = key(
        "sharegroup.fetch.session.partitions.max",
        session_sizes.ALL_PARTITIONS_MAX,
        "Maximum number of partitions in all fetch sessions; a fetch that exceeds it is answered "
        "without a session.",
        low=0,
    )
    group_settings_bytes_max: int = key(
        "sharegroup.group.settings.bytes.max",
        8_388_608,
        "Maximum memory for the settings of all groups, including groups that do not exist.",
        kind=ConfigType.LONG,
        low=0,
    )
    auto_create_topics: bool = key(
        "auto.create.topics.enable", True, "Create a topic when a client first requests it."
    )
    delete_topics: bool = key("delete.topic.enable", True, "Allow clients to delete topics.")
    partitions_default: int = key(
        "num.partitions",
        1,
        "Number of partitions of a topic that is created without a number of partitions.",
        low=1,
    )
    partitions_max: int = key(
        "sharegroup.partitions.max", 20_000, "Maximum number of partitions of all topics.", low=1
    )
    share_state_apis: bool = key(
        "sharegroup.share.state.apis.enable",
        False,
        "Without an authorizer: serve the requests of the share coordinator (API keys 83 to 87) to "
        "every client that can connect; they read and change the delivery state of every group.",
    )
    authorizer_class: str = key(
        "authorizer.class.name",
        "",
        "Name of Kafka's `org.apache.kafka.metadata.authorizer.StandardAuthorizer` to check what "
        "each user may do by ACLs, with the same rules; empty: every client may do everything.",
    )
    super_users: str = key(
        "super.users",
        "",
        "Users that may do everything, as `User:alice;User:bob`, with an authorizer.",
        internal=True,
    )
    allow_if_no_acl: bool = key(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everyone may use a resource that no ACL applies to, with an authorizer.",
        internal=True,
    )
    acls_max: int = key(
        "sharegroup.acls.max", 2_000, "Maximum number of ACLs.", low=0, high=100_000
    )
    producer_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        "Time without a write after which the broker removes the state of an idempotent producer.",
        low=1,
        live=True,
    )
    producers_max: int = key(
        "sharegroup.producers.max",
        producer_room.ALL_PRODUCERS_MAX,
        "Maximum number of idempotent producers, counted once per partition; above it, the broker "
        "removes the state of the producers that have not written for the longest time.",
        low=1_000,
    )

    @property
    def data_directory(self) -> str:
        """The only directory of ``log.dirs``, as it is named there.

        Raises InvalidConfig if there is none or more than one.
        """
        paths = [path.strip() for path in self.log_dirs.split(",") if path.strip()]
        if len(paths) != 1:
            raise InvalidConfig(f"log.dirs must name one directory, not {self.log_dirs!r}")
        return paths[0]
