"""AdminClient: manages topics, configs, groups and offsets of any Kafka cluster.

Results are by item, for example by topic: the failure of one item does not affect the results
of the others.  A value that is a KafkaError is the broker's error for that item.  If the request
fails as a whole (no broker can be reached, timeout), the error is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from sharegroup.client.admin import configs as admin_configs
from sharegroup.client.admin import consumer_groups as admin_consumer_groups
from sharegroup.client.admin import features as admin_features
from sharegroup.client.admin import groups as admin_groups
from sharegroup.client.admin import offset_resets
from sharegroup.client.admin import topics as admin_topics
from sharegroup.client.admin.offset_resets import Plan, Scenario
from sharegroup.client.admin.types import (
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
    NewTopic,
    ShareGroupDescription,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.fetch.offsets import ListedOffset, list_offsets
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig, ClientOptions, config_from
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import GroupType


class AdminClient:
    """Manages topics, configs, groups and offsets of a Kafka cluster.

    Example::

        async with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=3)])
            print(await admin.list_topics())
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._cluster = Cluster(config_from(ClientConfig, options))

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

    # Topics.

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Create topics; the result is None or an error, such as TopicAlreadyExists, by name."""
        return await admin_topics.create_topics(self._cluster, topics, validate_only=validate_only)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete topics; the result is None or an error by name."""
        return await admin_topics.delete_topics(self._cluster, names)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Increase the number of partitions of topics to the numbers in ``counts``."""
        return await admin_topics.create_partitions(
            self._cluster, counts, validate_only=validate_only
        )

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the sorted names of all topics; internal topics only with ``internal=True``."""
        described = await admin_topics.describe_topics(self._cluster, None)
        return sorted(
            name
            for name, topic in described.items()
            if isinstance(topic, TopicDescription) and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, include_authorized_operations: bool = False
    ) -> dict[str, TopicDescription | KafkaError]:
        """Describe these topics, or all topics: topic id, partitions and leaders.

        With ``include_authorized_operations`` also the operations that the user may perform.
        """
        return await admin_topics.describe_topics(
            self._cluster, names, authorized_operations=include_authorized_operations
        )

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up one offset in each partition by an OffsetSpec or a timestamp.

        A timestamp, in milliseconds, finds the first record at or after it.
        """
        return await list_offsets(self._cluster, specs)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before these offsets; return the new log start offsets.

        The offset -1 deletes all records of the partition.
        """
        return await admin_topics.delete_records(self._cluster, offsets)

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Describe the cluster: its id, controller and brokers.

        With ``include_fenced`` also the brokers that are registered but not running.
        """
        return await admin_topics.describe_cluster(self._cluster, include_fenced=include_fenced)

    # Configs.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        documentation: bool = False,
        node_id: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Return every config of these topics, brokers and groups, with the source of its value.

        ``node_id`` is the broker to ask about topics and groups; None asks any broker.
        """
        return await admin_configs.describe_configs(
            self._cluster, resources, documentation=documentation, node_id=node_id
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single configs and keep the others; atomic for each resource."""
        return await admin_configs.incremental_alter_configs(
            self._cluster, changes, validate_only=validate_only
        )

    # Groups.

    async def list_groups(
        self,
        *,
        states_filter: Iterable[GroupState | str] = (),
        types_filter: Iterable[GroupType | str] = (),
    ) -> list[GroupListing]:
        """List groups of all types, sorted by id.

        ``states_filter`` (for example ``GroupState.STABLE`` or ``"Stable"``) and ``types_filter``
        (for example ``GroupType.SHARE`` or ``"share"``) restrict the list.
        """
        return await admin_groups.list_groups(
            self._cluster, states=tuple(states_filter), types=tuple(types_filter)
        )

    async def list_share_groups(
        self, *, states_filter: Iterable[GroupState | str] = ()
    ) -> list[GroupListing]:
        """List share groups, sorted by id."""
        return await self.list_groups(states_filter=states_filter, types_filter=(GroupType.SHARE,))

    async def describe_share_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe share groups: state, epochs and members."""
        return await admin_groups.describe_share_groups(self._cluster, group_ids)

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError]:
        """Return the start offset and lag of share groups by partition.

        None in place of partitions means all partitions of the group.
        """
        return await admin_groups.list_share_group_offsets(self._cluster, groups)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a share group that has no members."""
        return await admin_groups.alter_share_group_offsets(self._cluster, group_id, offsets)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: Scenario,
        *,
        partitions: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> Plan:
        """Move the start offsets of a share group without members to the target of a scenario.

        The scenarios, such as `ToEarliest`, are in `offset_resets`.  ``partitions`` holds
        partitions, or topics for all their partitions; None means all partitions that the group
        has offsets for.  ``dry_run`` returns the same plan without changing anything.
        """
        return await offset_resets.reset_group_offsets(
            self._cluster, group_id, to, partitions=partitions, dry_run=dry_run
        )

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Delete the offsets and state of these topics from a share group without members."""
        return await admin_groups.delete_share_group_offsets(self._cluster, group_id, topics)

    async def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete share groups without members and their state; groups of other types are kept."""
        return await admin_groups.delete_share_groups(self._cluster, group_ids)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups of any type that have no members."""
        return await admin_groups.delete_groups(self._cluster, group_ids)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """Describe consumer groups, of the newer or the classic protocol: state and members."""
        return await admin_consumer_groups.describe_consumer_groups(self._cluster, group_ids)

    async def describe_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """Describe classic groups, including those that are not consumers: state and members."""
        return await admin_consumer_groups.describe_classic_groups(self._cluster, group_ids)

    async def list_consumer_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
        """Return the committed offsets of consumer groups by partition.

        None in place of partitions means all partitions of the group.
        """
        return await admin_consumer_groups.list_consumer_group_offsets(self._cluster, groups)

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the committed offsets of a consumer group that has no members."""
        return await admin_consumer_groups.alter_consumer_group_offsets(
            self._cluster, group_id, offsets
        )

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of a consumer group for partitions that no member reads."""
        return await admin_consumer_groups.delete_consumer_group_offsets(
            self._cluster, group_id, partitions
        )

    # Features.

    async def describe_features(self) -> Features:
        """Return the feature levels that the brokers support and those in effect."""
        return await admin_features.describe_features(self._cluster)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Change the levels of features, either all of them or none."""
        return await admin_features.update_features(
            self._cluster, updates, validate_only=validate_only
        )
