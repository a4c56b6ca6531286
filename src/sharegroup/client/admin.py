"""AdminClient: topics, configs, groups and offsets of any Kafka cluster.

Results come by item: one topic that exists already does not hide what became of the others.
A value that is a KafkaError is what the broker said about that item; what could not be asked
at all (no broker, no time left) is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from sharegroup.client import (
    admin_configs,
    admin_consumer_groups,
    admin_features,
    admin_groups,
    admin_topics,
    offset_resets,
)
from sharegroup.client.admin_types import (
    AlterConfig,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    Features,
    FeatureUpdate,
    GroupListing,
    ListedOffset,
    NewTopic,
    ShareGroupDescription,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig, ClientOptions, config_from
from sharegroup.client.offset_resets import Plan, Scenario
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError

SHARE = "share"


class AdminClient:
    """Administers a cluster.

    Example::

        async with AdminClient(bootstrap_servers=bootstrap) as admin:
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
        """End all connections."""
        self._cluster.close()

    @property
    def client_id(self) -> str:
        """As the brokers know this client."""
        return self._cluster.config.client_id

    def metrics(self) -> dict[str, dict[str, float]]:
        """What this client counted and measured, by Kafka's groups and names."""
        return self._cluster.metrics.read()

    # Topics.

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Create topics; None for each that was, TopicAlreadyExists and others as results."""
        return await admin_topics.create_topics(self._cluster, topics, validate_only=validate_only)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete topics by name."""
        return await admin_topics.delete_topics(self._cluster, names)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Raise the number of partitions of topics to ``counts``."""
        return await admin_topics.create_partitions(
            self._cluster, counts, validate_only=validate_only
        )

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; Kafka's internal ones only when asked for."""
        described = await admin_topics.describe_topics(self._cluster, None)
        return sorted(
            name
            for name, topic in described.items()
            if isinstance(topic, TopicDescription) and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self, names: Iterable[str] | None = None
    ) -> dict[str, TopicDescription | KafkaError]:
        """Id, partitions and leaders of these topics, or of all."""
        return await admin_topics.describe_topics(self._cluster, names)

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Offsets of partitions: an OffsetSpec, or the first record at or after a time in ms."""
        return await admin_topics.list_offsets(self._cluster, specs)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete what lies before these offsets (-1: everything); the new first offsets."""
        return await admin_topics.delete_records(self._cluster, offsets)

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return await admin_topics.describe_cluster(self._cluster)

    # Configs.

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Every config of these topics, brokers and groups, and where its value comes from."""
        return await admin_configs.describe_configs(
            self._cluster, resources, documentation=documentation
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single configs and leave the others; all or none for each resource."""
        return await admin_configs.incremental_alter_configs(
            self._cluster, changes, validate_only=validate_only
        )

    # Groups.

    async def list_groups(
        self, *, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups, sorted by id; filters by state (``Stable``) and type (``share``)."""
        return await admin_groups.list_groups(
            self._cluster, states=tuple(states_filter), types=tuple(types_filter)
        )

    async def list_share_groups(self, *, states_filter: Iterable[str] = ()) -> list[GroupListing]:
        """`list_groups` for share groups alone."""
        return await self.list_groups(states_filter=states_filter, types_filter=(SHARE,))

    async def describe_share_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """State, epochs and members of share groups."""
        return await admin_groups.describe_share_groups(self._cluster, group_ids)

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError]:
        """Start offset and lag by partition; None asks for all partitions of a group."""
        return await admin_groups.list_share_group_offsets(self._cluster, groups)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move the start offsets of a group without members."""
        return await admin_groups.alter_share_group_offsets(self._cluster, group_id, offsets)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: Scenario,
        *,
        partitions: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> Plan:
        """Let a share group without members start elsewhere: see `offset_resets`.

        ``partitions`` holds partitions, and topics for all of theirs; None means all that the
        group has offsets of.  With ``dry_run`` the same result, and nothing is changed.
        """
        return await offset_resets.reset_group_offsets(
            self._cluster, group_id, to, partitions=partitions, dry_run=dry_run
        )

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Forget what a group without members knows of these topics."""
        return await admin_groups.delete_share_group_offsets(self._cluster, group_id, topics)

    async def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete share groups without members, and their state; other groups are left alone."""
        return await admin_groups.delete_share_groups(self._cluster, group_ids)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, whatever type they are of."""
        return await admin_groups.delete_groups(self._cluster, group_ids)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """State and members of groups that read topics, by the newer protocol or the classic."""
        return await admin_consumer_groups.describe_consumer_groups(self._cluster, group_ids)

    async def describe_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """State and members of classic groups, also of those that are not consumers."""
        return await admin_consumer_groups.describe_classic_groups(self._cluster, group_ids)

    async def list_consumer_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
        """What consumer groups committed; None asks for all partitions of a group."""
        return await admin_consumer_groups.list_consumer_group_offsets(self._cluster, groups)

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a consumer group without members."""
        return await admin_consumer_groups.alter_consumer_group_offsets(
            self._cluster, group_id, offsets
        )

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget what a consumer group committed for partitions that no member reads."""
        return await admin_consumer_groups.delete_consumer_group_offsets(
            self._cluster, group_id, partitions
        )

    # Features.

    async def describe_features(self) -> Features:
        """What the brokers support, and the levels that the cluster agreed on."""
        return await admin_features.describe_features(self._cluster)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Change levels of features, all of them or none."""
        return await admin_features.update_features(
            self._cluster, updates, validate_only=validate_only
        )
