"""Blocking AdminClient, for programs without an event loop."""

from __future__ import annotations

from typing import Unpack

from sharegroup.client.admin import admin_client as admin
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking


class AdminClient(BlockingClient[admin.AdminClient]):
    """Manages topics, configs, groups and offsets of a Kafka cluster, with blocking methods.

    The methods are those of `sharegroup.client.AdminClient`.

    Example::

        with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=3)])
            print(admin.list_topics())
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        client = admin.AdminClient(**options)
        super().__init__(client, client.client_id)

    @property
    def principal(self) -> str | None:
        """The user as ACLs name it (``User:name``); None if only the broker knows the name."""
        return self._client.principal

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._claims_close():
            self._end(self._client.close())

    create_topics = blocking(admin.AdminClient.create_topics)
    delete_topics = blocking(admin.AdminClient.delete_topics)
    create_partitions = blocking(admin.AdminClient.create_partitions)
    list_topics = blocking(admin.AdminClient.list_topics)
    describe_topics = blocking(admin.AdminClient.describe_topics)
    list_offsets = blocking(admin.AdminClient.list_offsets)
    delete_records = blocking(admin.AdminClient.delete_records)
    describe_topics_by_id = blocking(admin.AdminClient.describe_topics_by_id)
    describe_cluster = blocking(admin.AdminClient.describe_cluster)
    describe_log_dirs = blocking(admin.AdminClient.describe_log_dirs)
    describe_metadata_quorum = blocking(admin.AdminClient.describe_metadata_quorum)

    describe_configs = blocking(admin.AdminClient.describe_configs)
    list_config_resources = blocking(admin.AdminClient.list_config_resources)
    incremental_alter_configs = blocking(admin.AdminClient.incremental_alter_configs)

    list_groups = blocking(admin.AdminClient.list_groups)
    delete_groups = blocking(admin.AdminClient.delete_groups)
    describe_share_and_consumer_groups = blocking(
        admin.AdminClient.describe_share_and_consumer_groups
    )

    list_share_groups = blocking(admin.AdminClient.list_share_groups)
    describe_share_groups = blocking(admin.AdminClient.describe_share_groups)
    delete_share_groups = blocking(admin.AdminClient.delete_share_groups)
    list_share_group_offsets = blocking(admin.AdminClient.list_share_group_offsets)
    list_share_group_runs = blocking(admin.AdminClient.list_share_group_runs)
    alter_share_group_offsets = blocking(admin.AdminClient.alter_share_group_offsets)
    delete_share_group_offsets = blocking(admin.AdminClient.delete_share_group_offsets)
    reset_group_offsets = blocking(admin.AdminClient.reset_group_offsets)

    list_consumer_groups = blocking(admin.AdminClient.list_consumer_groups)
    describe_groups = blocking(admin.AdminClient.describe_groups)
    describe_consumer_groups = blocking(admin.AdminClient.describe_consumer_groups)
    list_consumer_group_offsets = blocking(admin.AdminClient.list_consumer_group_offsets)
    alter_consumer_group_offsets = blocking(admin.AdminClient.alter_consumer_group_offsets)
    delete_consumer_group_offsets = blocking(admin.AdminClient.delete_consumer_group_offsets)

    list_transactions = blocking(admin.AdminClient.list_transactions)
    describe_transactions = blocking(admin.AdminClient.describe_transactions)
    describe_producers = blocking(admin.AdminClient.describe_producers)
    fence_producers = blocking(admin.AdminClient.fence_producers)
    abort_transaction = blocking(admin.AdminClient.abort_transaction)

    describe_user_scram_credentials = blocking(admin.AdminClient.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(admin.AdminClient.alter_user_scram_credentials)
    create_acls = blocking(admin.AdminClient.create_acls)
    describe_acls = blocking(admin.AdminClient.describe_acls)
    delete_acls = blocking(admin.AdminClient.delete_acls)

    describe_api_versions = blocking(admin.AdminClient.describe_api_versions)
    describe_features = blocking(admin.AdminClient.describe_features)
    describe_client_quotas = blocking(admin.AdminClient.describe_client_quotas)
    alter_client_quotas = blocking(admin.AdminClient.alter_client_quotas)
    update_features = blocking(admin.AdminClient.update_features)
