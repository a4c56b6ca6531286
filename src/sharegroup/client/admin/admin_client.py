"""AdminClient: manages topics, configs, groups and offsets of any Kafka cluster.

Results are by item, for example by topic: the failure of one item does not affect the results
of the others.  A value that is a KafkaError is the broker's error for that item.  If the request
fails as a whole (no broker can be reached, timeout), the error is raised.

Every method has a ``timeout`` in seconds, for all of its requests with their retries.  None means
``default_api_timeout_ms``.  Items without an answer at its end have RequestTimedOut as result, if
each has a request of its own, as groups have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack
from uuid import UUID

from sharegroup.client.admin import (
    acls as admin_acls,
    brokers as admin_brokers,
    brokers as admin_features,
    configs as admin_configs,
    consumer_groups as admin_consumer_groups,
    groups as admin_groups,
    offset_resets,
    quotas as admin_quotas,
    topics as admin_topics,
    transactions as admin_transactions,
    users as admin_users,
)
from sharegroup.client.admin.offset_resets import Plan, Scenario
from sharegroup.client.admin.quotas import Name, QuotaEntity
from sharegroup.client.admin.types import (
    AclBinding,
    AclBindingFilter,
    AlterConfig,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    Features,
    FeatureUpdate,
    GroupListing,
    GroupState,
    LogDirDescription,
    MetadataQuorum,
    NewTopic,
    OpenTransaction,
    ProducerIdentity,
    ProducerState,
    ScramCredentialAlteration,
    ScramCredentialInfo,
    ShareGroupDescription,
    SharePartitionOffset,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sharegroup.client.fetch.offsets import ListedOffset, list_offsets
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.telemetry import Telemetry
from sharegroup.client.records import Offsets, TopicPartition, checked_offsets
from sharegroup.client.settings.client_config import ClientConfig, ClientOptions, config_from
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import GroupType, ResourceType


class AdminClient:
    """Manages topics, configs, groups and offsets of a Kafka cluster.

    Example::

        async with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=3)])
            print(await admin.list_topics())
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._cluster = Cluster(config_from(ClientConfig, options))
        self._telemetry = Telemetry(self._cluster)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    @property
    def client_id(self) -> str:
        """The client id in the brokers' logs and metrics."""
        return self._cluster.config.client_id

    @property
    def principal(self) -> str | None:
        """The user as ACLs name it (``User:name``); None if only the broker knows the name."""
        return self._cluster.principal

    def metrics(self) -> dict[str, dict[str, float]]:
        """The current value of every metric, by Kafka's metric group and name."""
        return self._cluster.metrics.read()

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that the cluster gives this client for its metrics (KIP-714).

        Raises IllegalStateError with ``enable_metrics_push=False``, and UnsupportedVersion if the
        cluster serves no telemetry.
        """
        return await self._telemetry.client_instance_id(timeout)

    # Topics.

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Create topics; the result is None or an error, such as TopicAlreadyExists, by name."""
        with self._cluster.call(timeout):
            return await admin_topics.create_topics(
                self._cluster, topics, validate_only=validate_only
            )

    async def delete_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete topics; the result is None or an error by name."""
        with self._cluster.call(timeout):
            return await admin_topics.delete_topics(self._cluster, names)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Increase the number of partitions of topics to the numbers in ``counts``."""
        with self._cluster.call(timeout):
            return await admin_topics.create_partitions(
                self._cluster, counts, validate_only=validate_only
            )

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> list[str]:
        """Return the sorted names of all topics; internal topics only with ``internal=True``."""
        with self._cluster.call(timeout):
            described = await admin_topics.describe_topics(self._cluster, None)
            return sorted(
                name
                for name, topic in described.items()
                if isinstance(topic, TopicDescription) and (internal or not topic.is_internal)
            )

    async def describe_topics(
        self,
        names: Iterable[str] | None = None,
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription | KafkaError]:
        """Describe these topics, or all topics: topic id, partitions and leaders.

        With ``include_authorized_operations`` also the operations that the user may perform.
        """
        with self._cluster.call(timeout):
            return await admin_topics.describe_topics(
                self._cluster, names, authorized_operations=include_authorized_operations
            )

    async def describe_topics_by_id(
        self,
        topic_ids: Iterable[UUID],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[UUID, TopicDescription | KafkaError]:
        """Describe topics by their ids; a topic that was created again has another id."""
        with self._cluster.call(timeout):
            return await admin_topics.describe_topics_by_id(
                self._cluster, topic_ids, authorized_operations=include_authorized_operations
            )

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up one offset in each partition by an OffsetSpec or a timestamp.

        A timestamp, in milliseconds, finds the first record at or after it.
        """
        with self._cluster.call(timeout):
            return await list_offsets(self._cluster, specs)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before these offsets; return the new log start offsets.

        The offset -1 deletes all records of the partition.
        """
        with self._cluster.call(timeout):
            return await admin_topics.delete_records(self._cluster, offsets)

    async def describe_cluster(
        self,
        *,
        include_fenced: bool = False,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Describe the cluster: its id, controller and brokers.

        With ``include_fenced`` also the brokers that are registered but not running.
        """
        with self._cluster.call(timeout):
            return await admin_topics.describe_cluster(
                self._cluster,
                include_fenced=include_fenced,
                authorized_operations=include_authorized_operations,
            )

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription | KafkaError] | KafkaError]:
        """Describe the log directories of these brokers, or of all: sizes of logs, room on disk.

        The result is by node id and path.
        """
        with self._cluster.call(timeout):
            return await admin_brokers.describe_log_dirs(self._cluster, node_ids)

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> MetadataQuorum:
        """Describe the leader and the replicas of the cluster's metadata, the controllers."""
        with self._cluster.call(timeout):
            return await admin_brokers.describe_metadata_quorum(self._cluster)

    # Configs.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        documentation: bool = False,
        node_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Return every config of these topics, brokers and groups, with the source of its value.

        ``node_id`` is the broker to ask about topics and groups; None asks any broker.
        """
        with self._cluster.call(timeout):
            return await admin_configs.describe_configs(
                self._cluster, resources, documentation=documentation, node_id=node_id
            )

    async def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """List the resources that have configs, of these types or of all, sorted.

        Groups are listed that have configs of their own, whether the group exists or not.
        """
        with self._cluster.call(timeout):
            return await admin_configs.list_config_resources(self._cluster, types)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single configs and keep the others; atomic for each resource."""
        with self._cluster.call(timeout):
            return await admin_configs.incremental_alter_configs(
                self._cluster, changes, validate_only=validate_only
            )

    # Groups.

    async def list_groups(
        self,
        *,
        states_filter: Iterable[GroupState | str] = (),
        types_filter: Iterable[GroupType | str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """List groups of all types, sorted by id.

        ``states_filter`` (for example ``GroupState.STABLE`` or ``"Stable"``) and ``types_filter``
        (for example ``GroupType.SHARE`` or ``"share"``) restrict the list.
        """
        with self._cluster.call(timeout):
            return await admin_groups.list_groups(
                self._cluster, states=tuple(states_filter), types=tuple(types_filter)
            )

    async def list_share_groups(
        self, *, states_filter: Iterable[GroupState | str] = (), timeout: float | None = None
    ) -> list[GroupListing]:
        """List share groups, sorted by id."""
        with self._cluster.call(timeout):
            return await self.list_groups(
                states_filter=states_filter, types_filter=(GroupType.SHARE,)
            )

    async def list_consumer_groups(
        self,
        *,
        states_filter: Iterable[GroupState | str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """List consumer groups of both protocols, sorted by id; the type names the protocol.

        A classic group without members and without a protocol counts as one: it has offsets.
        """
        with self._cluster.call(timeout):
            groups = await self.list_groups(
                states_filter=states_filter, types_filter=(GroupType.CONSUMER, GroupType.CLASSIC)
            )
            return [
                group
                for group in groups
                if group.type is GroupType.CONSUMER
                or group.protocol_type in (admin_consumer_groups.CONSUMER_PROTOCOL, "")
            ]

    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe share groups: state, epochs and members."""
        with self._cluster.call(timeout):
            return await admin_groups.describe_share_groups(
                self._cluster, group_ids, authorized_operations=include_authorized_operations
            )

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError]:
        """Return the start offset and lag of share groups by partition.

        None in place of partitions means all partitions of the group.
        """
        with self._cluster.call(timeout):
            return await admin_groups.list_share_group_offsets(self._cluster, groups)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a share group that has no members."""
        with self._cluster.call(timeout):
            return await admin_groups.alter_share_group_offsets(self._cluster, group_id, offsets)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: Scenario,
        *,
        partitions: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Plan:
        """Move the start offsets of a share group without members to the target of a scenario.

        The scenarios, such as `ToEarliest`, are in `offset_resets`.  ``partitions`` holds
        partitions, or topics for all their partitions; None means all partitions that the group
        has offsets for.  ``dry_run`` returns the same plan without changing anything.
        """
        with self._cluster.call(timeout):
            return await offset_resets.reset_group_offsets(
                self._cluster, group_id, to, partitions=partitions, dry_run=dry_run
            )

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete the offsets and state of these topics from a share group without members."""
        with self._cluster.call(timeout):
            return await admin_groups.delete_share_group_offsets(self._cluster, group_id, topics)

    async def delete_share_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete share groups without members and their state; groups of other types are kept."""
        with self._cluster.call(timeout):
            return await admin_groups.delete_share_groups(self._cluster, group_ids)

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete groups of any type that have no members."""
        with self._cluster.call(timeout):
            return await admin_groups.delete_groups(self._cluster, group_ids)

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """Describe consumer groups, of the newer or the classic protocol: state and members."""
        with self._cluster.call(timeout):
            return await admin_consumer_groups.describe_consumer_groups(
                self._cluster, group_ids, authorized_operations=include_authorized_operations
            )

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """Describe classic groups, including those that are not consumers: state and members."""
        with self._cluster.call(timeout):
            return await admin_consumer_groups.describe_classic_groups(
                self._cluster, group_ids, authorized_operations=include_authorized_operations
            )

    async def list_consumer_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
        """Return the committed offsets of consumer groups by partition.

        None in place of partitions means all partitions of the group.
        """
        with self._cluster.call(timeout):
            return await admin_consumer_groups.list_consumer_group_offsets(self._cluster, groups)

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Offsets, *, timeout: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the committed offsets of a consumer group that has no members."""
        with self._cluster.call(timeout):
            return await admin_consumer_groups.alter_consumer_group_offsets(
                self._cluster, group_id, checked_offsets(offsets)
            )

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of a consumer group for partitions that no member reads."""
        with self._cluster.call(timeout):
            return await admin_consumer_groups.delete_consumer_group_offsets(
                self._cluster, group_id, partitions
            )

    # Transactions.

    async def list_transactions(
        self,
        *,
        states_filter: Iterable[TransactionState | str] = (),
        producer_ids_filter: Iterable[int] = (),
        duration_min_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids of all coordinators, sorted.

        ``duration_min_ms`` restricts the list to transactions that have been open for longer, and
        ``transactional_id_pattern``, a regular expression of RE2, to ids that match as a whole.
        """
        with self._cluster.call(timeout):
            return await admin_transactions.list_transactions(
                self._cluster,
                states=tuple(states_filter),
                producer_ids=tuple(producer_ids_filter),
                duration_min_ms=duration_min_ms,
                pattern=transactional_id_pattern,
            )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactions by their transactional ids: state, producer and partitions."""
        with self._cluster.call(timeout):
            return await admin_transactions.describe_transactions(self._cluster, transactional_ids)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
        """Describe the idempotent and transactional producers that partition leaders know."""
        with self._cluster.call(timeout):
            return await admin_transactions.describe_producers(self._cluster, partitions)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, ProducerIdentity | KafkaError]:
        """Fence the producers with these transactional ids, and abort their transactions."""
        with self._cluster.call(timeout):
            return await admin_transactions.fence_producers(self._cluster, transactional_ids)

    async def abort_transaction(
        self, transaction: OpenTransaction, *, timeout: float | None = None
    ) -> None:
        """Write an abort marker to one partition; for a transaction that no coordinator knows.

        Use `fence_producers` for all others.  `describe_producers` has the values to give.
        """
        with self._cluster.call(timeout):
            await admin_transactions.abort_transaction(self._cluster, transaction)

    # Quotas.

    async def describe_client_quotas(
        self,
        *,
        user: Name = None,
        client_id: Name = None,
        ip: Name = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the limits of the entities that have these names, or of all.

        ``QuotaName.DEFAULT`` is the default and ``QuotaName.ANY`` every name.  With ``strict``,
        entities with further names are left out.
        """
        wanted = QuotaEntity(user, client_id, ip)
        with self._cluster.call(timeout):
            return await admin_quotas.describe_client_quotas(self._cluster, wanted, strict=strict)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Set limits of users, client ids and addresses by key; None removes a limit.

        The keys are those of Kafka, such as ``producer_byte_rate``.
        """
        with self._cluster.call(timeout):
            return await admin_quotas.alter_client_quotas(
                self._cluster, changes, validate_only=validate_only
            )

    # Users.

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
        """Return the SCRAM credentials of these users, or of all users: mechanisms, no keys."""
        with self._cluster.call(timeout):
            return await admin_users.describe_user_scram_credentials(self._cluster, users)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramCredentialAlteration], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Set and remove passwords of users for SCRAM; a user may be named once."""
        with self._cluster.call(timeout):
            return await admin_users.alter_user_scram_credentials(self._cluster, alterations)

    # Access control lists.

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout: float | None = None
    ) -> dict[AclBinding, KafkaError | None]:
        """Create ACLs; one that exists already is no error."""
        with self._cluster.call(timeout):
            return await admin_acls.create_acls(self._cluster, bindings)

    async def describe_acls(
        self, filter_: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> tuple[AclBinding, ...]:
        """Return the ACLs that match a filter, or all, in the order of resources and users."""
        with self._cluster.call(timeout):
            return await admin_acls.describe_acls(self._cluster, filter_ or AclBindingFilter())

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> dict[AclBindingFilter, tuple[AclBinding, ...] | KafkaError]:
        """Delete the ACLs that match filters, and return what each filter deleted."""
        with self._cluster.call(timeout):
            return await admin_acls.delete_acls(self._cluster, filters)

    # Features.

    async def describe_features(self, *, timeout: float | None = None) -> Features:
        """Return the feature levels that the brokers support and those in effect."""
        with self._cluster.call(timeout):
            return await admin_features.describe_features(self._cluster)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Change the levels of features, either all of them or none."""
        with self._cluster.call(timeout):
            return await admin_features.update_features(
                self._cluster, updates, validate_only=validate_only
            )
