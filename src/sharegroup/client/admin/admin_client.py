"""AdminClient: manages topics, configs, groups and offsets of any Kafka cluster.

Results are by item, for example by topic: the failure of one item does not affect the results
of the others.  A value that is a KafkaError is the broker's error for that item.  If the request
fails as a whole (no broker can be reached, timeout), the error is raised.

Every method has a ``timeout`` in seconds, for all of its requests with their retries.  None means
``default_api_timeout_ms``.  Items without an answer at its end have RequestTimedOut as result, if
each has a request of its own, as groups have.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from sharegroup.client.admin import (
    acls,
    brokers,
    configs,
    consumer_groups,
    groups,
    groups_of_any_type,
    offset_resets,
    quotas,
    share_group_runs,
    topics,
    transactions,
    users,
)
from sharegroup.client.admin.calls import method
from sharegroup.client.fetch.offsets import ListedOffset, list_offsets
from sharegroup.client.net import telemetry
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig, ClientOptions, config_from
from sharegroup.errors import KafkaError


class AdminClient:
    """Manages topics, configs, groups and offsets of a Kafka cluster.

    Example::

        async with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=3)])
            print(await admin.list_topics())
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._cluster = Cluster(config_from(ClientConfig, options))
        self._telemetry = telemetry.Telemetry(self._cluster)

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

    metrics = telemetry.metrics
    client_instance_id = telemetry.client_instance_id

    # Topics.

    create_topics = method(topics.create_topics)
    delete_topics = method(topics.delete_topics)
    create_partitions = method(topics.create_partitions)
    list_topics = method(topics.list_topics)
    describe_topics = method(topics.describe_topics)
    describe_topics_by_id = method(topics.describe_topics_by_id)

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up one offset in each partition by an OffsetSpec or a timestamp.

        A timestamp, in milliseconds, finds the first record at or after it.
        """
        with self._cluster.call(timeout):
            return await list_offsets(self._cluster, specs)

    delete_records = method(topics.delete_records)
    describe_cluster = method(topics.describe_cluster)
    describe_log_dirs = method(brokers.describe_log_dirs)
    describe_metadata_quorum = method(brokers.describe_metadata_quorum)

    # Configs.

    describe_configs = method(configs.describe_configs)
    list_config_resources = method(configs.list_config_resources)
    incremental_alter_configs = method(configs.incremental_alter_configs)

    # Groups.

    list_groups = method(groups.list_groups)
    list_share_groups = method(groups.list_share_groups)
    list_consumer_groups = method(consumer_groups.list_consumer_groups)
    describe_share_groups = method(groups.describe_share_groups)
    list_share_group_offsets = method(groups.list_share_group_offsets)
    list_share_group_runs = method(share_group_runs.list_share_group_runs)
    alter_share_group_offsets = method(groups.alter_share_group_offsets)
    reset_group_offsets = method(offset_resets.reset_group_offsets)
    delete_share_group_offsets = method(groups.delete_share_group_offsets)
    delete_share_groups = method(groups.delete_share_groups)
    delete_groups = method(groups.delete_groups)
    describe_consumer_groups = method(consumer_groups.describe_consumer_groups)
    describe_groups = method(consumer_groups.describe_groups)
    describe_share_and_consumer_groups = method(
        groups_of_any_type.describe_share_and_consumer_groups
    )
    list_consumer_group_offsets = method(consumer_groups.list_consumer_group_offsets)
    alter_consumer_group_offsets = method(consumer_groups.alter_consumer_group_offsets)
    delete_consumer_group_offsets = method(consumer_groups.delete_consumer_group_offsets)

    # Transactions.

    list_transactions = method(transactions.list_transactions)
    describe_transactions = method(transactions.describe_transactions)
    describe_producers = method(transactions.describe_producers)
    fence_producers = method(transactions.fence_producers)
    abort_transaction = method(transactions.abort_transaction)

    # Quotas.

    describe_client_quotas = method(quotas.describe_client_quotas)
    alter_client_quotas = method(quotas.alter_client_quotas)

    # Users.

    describe_user_scram_credentials = method(users.describe_user_scram_credentials)
    alter_user_scram_credentials = method(users.alter_user_scram_credentials)

    # Access control lists.

    create_acls = method(acls.create_acls)
    describe_acls = method(acls.describe_acls)
    delete_acls = method(acls.delete_acls)

    # Features.

    describe_api_versions = method(brokers.describe_api_versions)
    describe_features = method(brokers.describe_features)
    update_features = method(brokers.update_features)
