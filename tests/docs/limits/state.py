"""The limits of the state that the broker keeps of sessions, groups, topics and settings."""

from __future__ import annotations

from sharegroup.core.client_telemetry import client_instances
from sharegroup.core.log import producer_room
from sharegroup.core.quotas import entities, meters
from sharegroup.core.sessions import user_part as session_sizes
from tests.docs.limits.limit import Limit

SESSIONS: tuple[Limit, ...] = (
    Limit(
        setting="max.incremental.fetch.session.cache.slots",
        unit="sessions",
        bounds="fetch sessions",
        answer="a response without a session (session id 0). If another connection has more than "
        "an equal share of the sessions, one of its sessions is closed instead",
        metric="kafka_server_fetch_sessions",
    ),
    Limit(
        setting="sharegroup.fetch.session.partitions.max",
        unit="partitions",
        bounds="partitions of all fetch sessions",
        answer="a response without a session (session id 0); for a session that grows: "
        "FETCH_SESSION_ID_NOT_FOUND",
        metric="kafka_server_fetch_session_partitions",
        memory_each=session_sizes.PARTITION_BYTES,
    ),
    Limit(
        setting="core.sessions.user_part:PARTITIONS_MAX",
        unit="partitions",
        bounds="partitions of one fetch or share session",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="group.share.max.share.sessions",
        unit="sessions",
        bounds="share sessions",
        answer="SHARE_SESSION_LIMIT_REACHED. If another connection has more than an equal share "
        "of the sessions, one of its sessions is closed instead",
        metric="kafka_server_share_sessions",
    ),
    Limit(
        setting="sharegroup.share.session.partitions.max",
        unit="partitions",
        bounds="partitions of all share sessions",
        answer="SHARE_SESSION_LIMIT_REACHED",
        metric="kafka_server_share_session_partitions",
        memory_each=session_sizes.PARTITION_BYTES,
    ),
)

GROUPS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.share.groups.bytes.max",
        unit="bytes",
        bounds="ids, members and topic names of all share groups",
        answer="GROUP_MAX_SIZE_REACHED",
        metric="sharegroup_share_groups_bytes",
        memory_each=1,
    ),
    Limit(
        setting="core.groups.share.sizes:GROUP_ROOM_BYTES",
        unit="bytes",
        bounds="minimum size that counts for a share group in the total above",
        answer="no error: a group may grow to this size even if the total is reached",
    ),
    Limit(
        setting="core.groups.share.sizes:GROUP_BYTES_MAX",
        unit="bytes",
        bounds="ids, members and topic names of one share group",
        answer="GROUP_MAX_SIZE_REACHED",
    ),
    Limit(
        setting="core.groups.share.sizes:GROUP_ID_CHARACTERS_MAX",
        unit="characters",
        bounds="id of a new group",
        answer="INVALID_GROUP_ID",
    ),
    Limit(
        setting="core.groups.share.heartbeat:MEMBER_ID_CHARACTERS_MAX",
        unit="characters",
        bounds="id of a member of a share group",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="sharegroup.share.member.topics.max",
        unit="topics",
        bounds="topics that one member of a share group subscribes to",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="sharegroup.share.partitions.max",
        unit="share partitions",
        bounds="share partitions of all groups",
        answer="GROUP_MAX_SIZE_REACHED",
        metric="sharegroup_share_partitions_initialized",
    ),
    Limit(
        setting="group.share.max.size",
        unit="members",
        bounds="members of one share group",
        answer="GROUP_MAX_SIZE_REACHED",
    ),
    Limit(
        setting="sharegroup.assignment.member.partitions.max",
        unit="partitions",
        bounds="partitions of a member, in a group with a wide assignment",
        answer="no error: a member has more if partitions would have no member otherwise",
    ),
    Limit(
        setting="sharegroup.assignment.partition.members.max",
        unit="members",
        bounds="members of a partition, in a group with a wide assignment",
        answer="no error: a partition has more if members would have no partition otherwise",
    ),
    Limit(
        setting="sharegroup.share.partition.runs.max",
        unit="runs",
        bounds="runs of one share partition (neighbouring offsets in the same delivery state)",
        answer="no new records until some are settled",
        metric="sharegroup_share_partition_full",
    ),
    Limit(
        setting="core.delivery.redelivery:DELAYED_MAX",
        unit="records",
        bounds="delayed records of one share partition "
        "([Beyond KIP-932](beyond-kip-932.md#deliver-released-records-later))",
        answer="no new records until some are due",
        metric="sharegroup_share_partition_full",
    ),
    Limit(
        setting="group.share.partition.max.record.locks",
        unit="records",
        bounds="locked records of one share partition, without the rest of a log batch",
        answer="no new records until some are settled",
        metric="kafka_server_share_partition_in_flight_messages",
    ),
    Limit(
        setting="sharegroup.share.partition.batch.completion.max.records",
        unit="records",
        bounds="a log batch that is completed above the limit of locks",
        answer="the batch is delivered in pieces",
    ),
    Limit(
        setting="sharegroup.share.partition.batch.completion.max.bytes",
        unit="bytes",
        bounds="a log batch that is completed above the limit of locks",
        answer="the batch is delivered in pieces",
    ),
    Limit(
        setting="group.max.size",
        unit="members",
        bounds="members of one consumer group",
        answer="GROUP_MAX_SIZE_REACHED",
    ),
    Limit(
        setting="core.groups.classic.sizes:ALL_BYTES_MAX",
        unit="bytes",
        bounds="members of all consumer groups, with their ids, metadata and assignments",
        answer="POLICY_VIOLATION",
        memory_each=1,
    ),
    Limit(
        setting="core.groups.classic.sizes:GROUP_BYTES_MAX",
        unit="bytes",
        bounds="members of one consumer group, with their ids, metadata and assignments",
        answer="MESSAGE_TOO_LARGE",
    ),
    Limit(
        setting="core.groups.classic.member:LABEL_CHARACTERS_MAX",
        unit="characters",
        bounds="instance id and protocol type of a member of a consumer group",
        answer="INVALID_REQUEST; a longer client id is truncated",
    ),
    Limit(
        setting="sharegroup.consumer.groups.bytes.max",
        unit="bytes",
        bounds="members, topic names and assigned partitions of all groups of the consumer "
        "protocol (KIP-848)",
        answer="GROUP_MAX_SIZE_REACHED",
        metric="sharegroup_consumer_groups_bytes",
        memory_each=1,
    ),
    Limit(
        setting="core.groups.modern.sizes:GROUP_ROOM_BYTES",
        unit="bytes",
        bounds="minimum size that counts for such a group in the total above",
        answer="no error: a group may grow to this size even if the total is reached",
    ),
    Limit(
        setting="core.groups.modern.sizes:GROUP_BYTES_MAX",
        unit="bytes",
        bounds="members, topic names and assigned partitions of one such group",
        answer="GROUP_MAX_SIZE_REACHED",
    ),
    Limit(
        setting="group.consumer.max.size",
        unit="members",
        bounds="members of one such group",
        answer="GROUP_MAX_SIZE_REACHED",
    ),
    Limit(
        setting="sharegroup.consumer.member.topics.max",
        unit="topics",
        bounds="topics that one member of such a group subscribes to by name",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="core.groups.modern.sizes:PATTERNS_MAX",
        unit="patterns",
        bounds="different regular expressions that the members of one such group subscribe to",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="core.patterns:PATTERN_CHARACTERS_MAX",
        unit="characters",
        bounds="regular expression",
        answer="INVALID_REGULAR_EXPRESSION",
    ),
    Limit(
        setting="core.patterns:NODES_MAX",
        unit="nodes",
        bounds="automaton of a regular expression: about three nodes for each character, and "
        "copies for a repetition such as `{20}`",
        answer="INVALID_REGULAR_EXPRESSION",
    ),
    Limit(
        setting="core.patterns:STEPS_PER_TEXT_MAX",
        unit="steps",
        bounds="time to match a regular expression with all topics, for each topic",
        answer="INVALID_REGULAR_EXPRESSION",
    ),
    Limit(
        setting="core.groups.modern.sizes:LABEL_CHARACTERS_MAX",
        unit="characters",
        bounds="member id, instance id and rack id of a member of such a group",
        answer="INVALID_REQUEST; a longer client id is truncated",
    ),
    Limit(
        setting="core.groups.classic.sizes:GROUPS_MAX",
        unit="groups",
        bounds="consumer groups",
        answer="POLICY_VIOLATION",
        metric="kafka_group_coordinator_groups",
    ),
    Limit(
        setting="sharegroup.committed.offsets.bytes.max",
        unit="bytes",
        bounds="committed offsets of all consumer groups, with their metadata",
        answer="INVALID_COMMIT_OFFSET_SIZE, unless the commit needs no more memory than before",
        metric="sharegroup_committed_offsets_bytes",
        memory_each=1,
    ),
    Limit(
        setting="core.groups.classic.offsets:GROUP_PART",
        unit="parts",
        bounds="committed offsets of one consumer group: the limit for all groups, divided by "
        "this number",
        answer="INVALID_COMMIT_OFFSET_SIZE, unless the commit needs no more memory than before",
    ),
    Limit(
        setting="core.groups.classic.sizes:PENDING_MAX",
        unit="members",
        bounds="member ids of consumer groups that were issued and not yet used to join",
        answer="no error: the member joins immediately, without a second request",
    ),
    Limit(
        setting="offset.metadata.max.bytes",
        unit="bytes",
        bounds="metadata of one committed offset",
        answer="OFFSET_METADATA_TOO_LARGE",
    ),
)

TRANSACTIONS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.transactions.bytes.max",
        unit="bytes",
        bounds="all transactional ids, with the partitions of their transactions",
        answer="ids that have been idle for longest are forgotten; COORDINATOR_NOT_AVAILABLE if "
        "too few are idle",
        metric="sharegroup_transactions_bytes",
        memory_each=1,
    ),
    Limit(
        setting="core.transactions.transactions:ID_CHARACTERS_MAX",
        unit="characters",
        bounds="transactional id",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="core.transactions.transactions:PARTITIONS_MAX",
        unit="partitions",
        bounds="partitions of one transaction",
        answer="POLICY_VIOLATION",
    ),
    Limit(
        setting="transaction.max.timeout.ms",
        unit="ms",
        bounds="time-out of a transaction; a transaction that takes longer is aborted",
        answer="INVALID_TRANSACTION_TIMEOUT",
    ),
    Limit(
        setting="broker.transactions.waiting_requests:WAIT_MS_MAX",
        unit="ms",
        bounds="wait of a request for the markers of the previous transaction",
        answer="CONCURRENT_TRANSACTIONS",
    ),
)

TOPICS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.group.settings.bytes.max",
        unit="bytes",
        bounds="settings of all groups, including groups that do not exist",
        answer="POLICY_VIOLATION",
        metric="sharegroup_group_settings_bytes",
        memory_each=1,
    ),
    Limit(
        setting="broker.configuration.setting_changes:VALUE_CHARACTERS_MAX",
        unit="characters",
        bounds="value of one setting",
        answer="INVALID_CONFIG",
    ),
    Limit(
        setting="broker.configuration.setting_changes:PEM_CHARACTERS_MAX",
        unit="characters",
        bounds="value of one setting of a listener that holds keys or certificates",
        answer="INVALID_CONFIG",
    ),
    Limit(
        setting="broker.configuration.setting_changes:TOPIC_CHARACTERS_MAX",
        unit="characters",
        bounds="values of all settings of one topic",
        answer="INVALID_CONFIG",
    ),
    Limit(
        setting="sharegroup.producers.max",
        unit="producers",
        bounds="idempotent producers of all partitions, counted once per partition",
        answer="no error: the state of the producers that have not written for the longest time "
        "is removed",
        metric="sharegroup_producers",
        memory_each=producer_room.PRODUCER_BYTES,
    ),
    Limit(
        setting="sharegroup.partitions.max",
        unit="partitions",
        bounds="partitions of all topics",
        answer="POLICY_VIOLATION",
    ),
    Limit(
        setting="broker.cluster.topics:AUTO_CREATE_PART",
        unit="parts",
        bounds="partitions of all topics for automatic creation: `sharegroup.partitions.max` "
        "divided by this number",
        answer="POLICY_VIOLATION; CreateTopics still creates topics",
    ),
    Limit(
        setting="broker.handlers.topics.metadata:AUTO_CREATED_MAX",
        unit="topics",
        bounds="topics that one Metadata request creates automatically",
        answer="UNKNOWN_TOPIC_OR_PARTITION; the next request creates the next ones",
    ),
)

QUOTAS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.client.quota.entities.max",
        unit="entities",
        bounds="users, client ids and addresses that have quotas",
        answer="POLICY_VIOLATION",
        metric="sharegroup_client_quota_entities",
        memory_each=entities.ENTITY_BYTES + 2 * entities.LIMIT_BYTES,
    ),
    Limit(
        setting="core.quotas.entities:NAME_BYTES_MAX",
        unit="bytes",
        bounds="name of a user or client id with quotas",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="sharegroup.client.quota.meters.max",
        unit="clients",
        bounds="clients whose use is counted separately, for each kind of meter",
        answer="no error: further clients share one limit, those of one user beyond its part "
        "one of their own",
        metric="sharegroup_client_quota_meters",
        memory_each=3 * meters.METER_BYTES,
    ),
    Limit(
        setting="broker.access.quotas:LIMITS_KEPT_MAX",
        unit="clients",
        bounds="clients whose limits are remembered",
        answer="no error: the limits are looked up again",
    ),
    Limit(
        setting="broker.access.quotas:THROTTLE_MS_MAX",
        unit="ms",
        bounds="throttle time of one answer",
        answer="no error: a client with a quota far below the size of its requests gets more",
        metric="sharegroup_throttle_seconds_total",
    ),
)

CLIENT_METRICS: tuple[Limit, ...] = (
    Limit(
        setting="core.client_telemetry.pushed_values:TOTAL_BYTES_MAX",
        unit="bytes",
        bounds="values that all clients pushed",
        answer="no error: the values of the clients that have been silent for longest are removed",
        metric="sharegroup_client_metrics_bytes",
        memory_each=1,
    ),
    Limit(
        setting="core.client_telemetry.pushed_values:INSTANCE_BYTES_MAX",
        unit="bytes",
        bounds="values that one client pushed",
        answer="no error: further values are not kept",
        metric="sharegroup_client_metrics_values_dropped_total",
    ),
    Limit(
        setting="core.client_telemetry.client_instances:INSTANCES_MAX",
        unit="clients",
        bounds="clients that asked which metrics to push",
        answer="no error: the client that has been silent for longest is forgotten",
        metric="kafka_server_client_metrics_instances",
        memory_each=client_instances.INSTANCE_BYTES,
    ),
    Limit(
        setting="telemetry.max.bytes",
        unit="bytes",
        bounds="metrics of one push, compressed and decompressed",
        answer="TELEMETRY_TOO_LARGE; INVALID_RECORD if they are decompressed",
    ),
    Limit(
        setting="wire.otlp_metrics:VALUES_MAX",
        unit="values",
        bounds="values of one push",
        answer="no error: further values are not kept",
        metric="sharegroup_client_metrics_values_dropped_total",
    ),
    Limit(
        setting="wire.otlp_metrics:FIELDS_MAX",
        unit="fields",
        bounds="fields of the protobuf message of one push",
        answer="INVALID_RECORD",
    ),
    Limit(
        setting="broker.configuration.client_metrics_config:SUBSCRIPTIONS_MAX",
        unit="resources",
        bounds="resources of type `client-metrics`",
        answer="POLICY_VIOLATION",
    ),
    Limit(
        setting="broker.configuration.client_metrics_config:CHARACTERS_MAX",
        unit="characters",
        bounds="values of all settings of one such resource",
        answer="INVALID_CONFIG",
    ),
    Limit(
        setting="broker.metrics.client_values:NAMES_MAX",
        unit="metrics",
        bounds="different metrics of clients in one response for Prometheus",
        answer="no error: further ones are not shown",
    ),
)
