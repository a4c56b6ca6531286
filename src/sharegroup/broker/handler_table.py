"""The table of handlers: for each API key the functions that serve it, with their types.

Each entry names the types of its API's requests and responses, and type checkers compare them with
the functions of its module.  An entry's module is imported when its API is first used.  All modules
together take 140 ms to import, a third of the time that a broker takes to start.  So the imports
stand in the functions: there the import linter sees them, and nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from sharegroup.broker.handler_contract import AnyHandler, ApiHandler, Handling
from sharegroup.broker.security import requirements as required

if TYPE_CHECKING:
    # The classes of messages are what makes the handlers slow to import.
    from kio.schema.add_offsets_to_txn.v4 import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
    from kio.schema.add_partitions_to_txn.v5 import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from kio.schema.add_raft_voter.v1 import AddRaftVoterRequest, AddRaftVoterResponse
    from kio.schema.alter_client_quotas.v1 import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from kio.schema.alter_configs.v2 import AlterConfigsRequest, AlterConfigsResponse
    from kio.schema.alter_partition_reassignments.v1 import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from kio.schema.alter_replica_log_dirs.v2 import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
    )
    from kio.schema.alter_share_group_offsets.v0 import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    )
    from kio.schema.alter_user_scram_credentials.v0 import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from kio.schema.consumer_group_describe.v1 import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from kio.schema.consumer_group_heartbeat.v1 import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from kio.schema.create_acls.v3 import CreateAclsRequest, CreateAclsResponse
    from kio.schema.create_partitions.v3 import CreatePartitionsRequest, CreatePartitionsResponse
    from kio.schema.create_topics.v7 import CreateTopicsRequest, CreateTopicsResponse
    from kio.schema.delete_acls.v3 import DeleteAclsRequest, DeleteAclsResponse
    from kio.schema.delete_records.v2 import DeleteRecordsRequest, DeleteRecordsResponse
    from kio.schema.delete_share_group_offsets.v0 import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )
    from kio.schema.delete_share_group_state.v0 import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from kio.schema.delete_topics.v6 import DeleteTopicsRequest, DeleteTopicsResponse
    from kio.schema.describe_acls.v3 import DescribeAclsRequest, DescribeAclsResponse
    from kio.schema.describe_client_quotas.v1 import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )
    from kio.schema.describe_cluster.v2 import DescribeClusterRequest, DescribeClusterResponse
    from kio.schema.describe_configs.v4 import DescribeConfigsRequest, DescribeConfigsResponse
    from kio.schema.describe_groups.v6 import DescribeGroupsRequest, DescribeGroupsResponse
    from kio.schema.describe_log_dirs.v5 import DescribeLogDirsRequest, DescribeLogDirsResponse
    from kio.schema.describe_producers.v0 import (
        DescribeProducersRequest,
        DescribeProducersResponse,
    )
    from kio.schema.describe_quorum.v2 import DescribeQuorumRequest, DescribeQuorumResponse
    from kio.schema.describe_share_group_offsets.v1 import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )
    from kio.schema.describe_topic_partitions.v0 import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kio.schema.describe_transactions.v0 import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from kio.schema.describe_user_scram_credentials.v0 import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )
    from kio.schema.elect_leaders.v2 import ElectLeadersRequest, ElectLeadersResponse
    from kio.schema.end_txn.v5 import EndTxnRequest, EndTxnResponse
    from kio.schema.find_coordinator.v6 import FindCoordinatorRequest, FindCoordinatorResponse
    from kio.schema.get_telemetry_subscriptions.v0 import (
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
    )
    from kio.schema.heartbeat.v4 import HeartbeatRequest, HeartbeatResponse
    from kio.schema.incremental_alter_configs.v1 import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from kio.schema.init_producer_id.v5 import InitProducerIdRequest, InitProducerIdResponse
    from kio.schema.initialize_share_group_state.v0 import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from kio.schema.join_group.v9 import JoinGroupRequest, JoinGroupResponse
    from kio.schema.leave_group.v5 import LeaveGroupRequest, LeaveGroupResponse
    from kio.schema.list_config_resources.v1 import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )
    from kio.schema.list_groups.v5 import ListGroupsRequest, ListGroupsResponse
    from kio.schema.list_offsets.v11 import ListOffsetsRequest, ListOffsetsResponse
    from kio.schema.list_partition_reassignments.v0 import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from kio.schema.list_transactions.v2 import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )
    from kio.schema.metadata.v13 import MetadataRequest, MetadataResponse
    from kio.schema.offset_delete.v0 import OffsetDeleteRequest, OffsetDeleteResponse
    from kio.schema.offset_for_leader_epoch.v4 import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )
    from kio.schema.push_telemetry.v0 import PushTelemetryRequest, PushTelemetryResponse
    from kio.schema.read_share_group_state.v0 import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from kio.schema.read_share_group_state_summary.v1 import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from kio.schema.remove_raft_voter.v0 import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from kio.schema.sasl_authenticate.v2 import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
    )
    from kio.schema.sasl_handshake.v1 import (
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )
    from kio.schema.share_acknowledge.v2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
    from kio.schema.share_group_describe.v1 import (
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
    )
    from kio.schema.share_group_heartbeat.v1 import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )
    from kio.schema.sync_group.v5 import SyncGroupRequest, SyncGroupResponse
    from kio.schema.unregister_broker.v0 import UnregisterBrokerRequest, UnregisterBrokerResponse
    from kio.schema.write_share_group_state.v1 import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse

    from sharegroup.broker.message_versions import (
        FetchRequest,
        FetchResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        ProduceRequest,
        ProduceResponse,
        ShareFetchRequest,
        ShareFetchResponse,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from sharegroup.wire.messages.api_versions_v5 import ApiVersionsRequest, ApiVersionsResponse
    from sharegroup.wire.messages.delete_groups_v3 import DeleteGroupsRequest, DeleteGroupsResponse
    from sharegroup.wire.messages.unregister_controller_v0 import (
        UnregisterControllerRequest,
        UnregisterControllerResponse,
    )


@cache
def handler_of(api_key: int) -> AnyHandler:
    """Return the handler of an API, and import its module at the first call."""
    return HANDLERS[api_key]()


def _produce() -> ApiHandler[ProduceRequest, ProduceResponse]:
    from sharegroup.broker.handlers import produce

    return ApiHandler(
        produce.handle,
        produce.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        is_native=True,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.WRITE_TOPICS),
    )


def _fetch() -> ApiHandler[FetchRequest, FetchResponse]:
    from sharegroup.broker.handlers import fetch

    return ApiHandler(
        fetch.handle,
        fetch.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        is_native=True,
        checks=(required.READ_TOPICS, required.CLUSTER_ACTION),
    )


def _list_offsets() -> ApiHandler[ListOffsetsRequest, ListOffsetsResponse]:
    from sharegroup.broker.handlers import list_offsets

    return ApiHandler(list_offsets.handle, list_offsets.refuse, checks=(required.DESCRIBE_TOPICS,))


def _metadata() -> ApiHandler[MetadataRequest, MetadataResponse]:
    from sharegroup.broker.handlers import metadata
    from sharegroup.wire.messages.metadata_with_cluster import MetadataRequestWithCluster

    return ApiHandler(
        metadata.handle,
        metadata.refuse,
        handling=Handling.READS_IN_STEPS,
        upgraded_class=MetadataRequestWithCluster,
        checks=(
            required.DESCRIBE_TOPICS,
            required.CREATE_TOPICS,
            required.CREATE_IN_CLUSTER,
            required.DESCRIBE_CLUSTER,
        ),
    )


def _offset_commit() -> ApiHandler[OffsetCommitRequest, OffsetCommitResponse]:
    from sharegroup.broker.handlers import offset_commit

    return ApiHandler(
        offset_commit.handle,
        offset_commit.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        is_native=True,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _offset_fetch() -> ApiHandler[OffsetFetchRequest, OffsetFetchResponse]:
    from sharegroup.broker.handlers import offset_fetch

    return ApiHandler(
        offset_fetch.handle,
        offset_fetch.refuse,
        is_native=True,
        to_older=offset_fetch.to_older,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    )


def _find_coordinator() -> ApiHandler[FindCoordinatorRequest, FindCoordinatorResponse]:
    from sharegroup.broker.handlers import find_coordinator

    return ApiHandler(
        find_coordinator.handle,
        find_coordinator.refuse,
        handling=Handling.READS_IN_STEPS,
        from_older=find_coordinator.from_older,
        to_older=find_coordinator.to_older,
        checks=(
            required.DESCRIBE_GROUPS,
            required.DESCRIBE_TRANSACTIONAL_IDS,
            required.CLUSTER_ACTION,
        ),
    )


def _join_group() -> ApiHandler[JoinGroupRequest, JoinGroupResponse]:
    from sharegroup.broker.handlers import join_group

    return ApiHandler(join_group.handle, join_group.refuse, gates=(required.READ_GROUP,))


def _heartbeat() -> ApiHandler[HeartbeatRequest, HeartbeatResponse]:
    from sharegroup.broker.handlers import heartbeat

    return ApiHandler(heartbeat.handle, heartbeat.refuse, gates=(required.READ_GROUP,))


def _leave_group() -> ApiHandler[LeaveGroupRequest, LeaveGroupResponse]:
    from sharegroup.broker.handlers import leave_group

    return ApiHandler(
        leave_group.handle,
        leave_group.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        from_older=leave_group.from_older,
        to_older=leave_group.to_older,
        gates=(required.READ_GROUP,),
    )


def _sync_group() -> ApiHandler[SyncGroupRequest, SyncGroupResponse]:
    from sharegroup.broker.handlers import sync_group

    return ApiHandler(sync_group.handle, sync_group.refuse, gates=(required.READ_GROUP,))


def _describe_groups() -> ApiHandler[DescribeGroupsRequest, DescribeGroupsResponse]:
    from sharegroup.broker.handlers import describe_groups

    return ApiHandler(
        describe_groups.handle,
        describe_groups.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS,),
    )


def _list_groups() -> ApiHandler[ListGroupsRequest, ListGroupsResponse]:
    from sharegroup.broker.handlers import list_groups

    return ApiHandler(
        list_groups.handle,
        list_groups.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_CLUSTER, required.DESCRIBE_GROUPS),
    )


def _api_versions() -> ApiHandler[ApiVersionsRequest, ApiVersionsResponse]:
    from sharegroup.broker.handlers import api_versions

    return ApiHandler(api_versions.handle, api_versions.refuse)


def _create_topics() -> ApiHandler[CreateTopicsRequest, CreateTopicsResponse]:
    from sharegroup.broker.handlers import create_topics

    return ApiHandler(
        create_topics.handle,
        create_topics.refuse,
        checks=(
            required.CREATE_IN_CLUSTER,
            required.CREATE_TOPICS,
            required.DESCRIBE_CONFIGS_OF_TOPICS,
        ),
    )


def _delete_topics() -> ApiHandler[DeleteTopicsRequest, DeleteTopicsResponse]:
    from sharegroup.broker.handlers import delete_topics

    return ApiHandler(
        delete_topics.handle,
        delete_topics.refuse,
        from_older=delete_topics.from_older,
        checks=(required.DELETE_IN_CLUSTER, required.DELETE_TOPICS, required.DESCRIBE_TOPICS),
    )


def _delete_records() -> ApiHandler[DeleteRecordsRequest, DeleteRecordsResponse]:
    from sharegroup.broker.handlers import delete_records

    return ApiHandler(
        delete_records.handle, delete_records.refuse, checks=(required.DELETE_TOPICS,)
    )


def _init_producer_id() -> ApiHandler[InitProducerIdRequest, InitProducerIdResponse]:
    from sharegroup.broker.handlers import init_producer_id

    return ApiHandler(
        init_producer_id.handle,
        init_producer_id.refuse,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.IDEMPOTENT_WRITE, required.WRITE_TOPICS),
    )


def _add_partitions_to_txn() -> ApiHandler[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]:
    from sharegroup.broker.handlers import add_partitions_to_txn

    return ApiHandler(
        add_partitions_to_txn.handle,
        add_partitions_to_txn.refuse,
        from_older=add_partitions_to_txn.from_older,
        to_older=add_partitions_to_txn.to_older,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.WRITE_TOPICS, required.CLUSTER_ACTION),
    )


def _add_offsets_to_txn() -> ApiHandler[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse]:
    from sharegroup.broker.handlers import add_offsets_to_txn

    return ApiHandler(
        add_offsets_to_txn.handle,
        add_offsets_to_txn.refuse,
        gates=(required.WRITE_TRANSACTIONAL_ID, required.READ_GROUP),
    )


def _end_txn() -> ApiHandler[EndTxnRequest, EndTxnResponse]:
    from sharegroup.broker.handlers import end_txn

    return ApiHandler(end_txn.handle, end_txn.refuse, gates=(required.WRITE_TRANSACTIONAL_ID,))


def _write_txn_markers() -> ApiHandler[WriteTxnMarkersRequest, WriteTxnMarkersResponse]:
    from sharegroup.broker.handlers import write_txn_markers

    return ApiHandler(
        write_txn_markers.handle,
        write_txn_markers.refuse,
        checks=(required.ALTER_CLUSTER, required.CLUSTER_ACTION),
    )


def _txn_offset_commit() -> ApiHandler[TxnOffsetCommitRequest, TxnOffsetCommitResponse]:
    from sharegroup.broker.handlers import txn_offset_commit

    return ApiHandler(
        txn_offset_commit.handle,
        txn_offset_commit.refuse,
        is_native=True,
        gates=(required.WRITE_TRANSACTIONAL_ID, required.READ_GROUP),
        checks=(required.READ_TOPICS,),
    )


def _offset_for_leader_epoch() -> ApiHandler[
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
]:
    from sharegroup.broker.handlers import offset_for_leader_epoch

    return ApiHandler(
        offset_for_leader_epoch.handle,
        offset_for_leader_epoch.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.CLUSTER_ACTION, required.DESCRIBE_TOPICS),
    )


def _describe_configs() -> ApiHandler[DescribeConfigsRequest, DescribeConfigsResponse]:
    from sharegroup.broker.handlers import describe_configs

    return ApiHandler(
        describe_configs.handle,
        describe_configs.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(
            required.DESCRIBE_CONFIGS_OF_TOPICS,
            required.DESCRIBE_CONFIGS_OF_GROUPS,
            required.DESCRIBE_CONFIGS_OF_CLUSTER,
        ),
    )


def _alter_configs() -> ApiHandler[AlterConfigsRequest, AlterConfigsResponse]:
    from sharegroup.broker.handlers import alter_configs

    return ApiHandler(
        alter_configs.handle,
        alter_configs.refuse,
        checks=(
            required.ALTER_CONFIGS_OF_TOPICS,
            required.ALTER_CONFIGS_OF_GROUPS,
            required.ALTER_CONFIGS_OF_CLUSTER,
        ),
    )


def _alter_replica_log_dirs() -> ApiHandler[
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
]:
    from sharegroup.broker.handlers import alter_replica_log_dirs

    return ApiHandler(
        alter_replica_log_dirs.handle,
        alter_replica_log_dirs.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.ALTER_CLUSTER,),
    )


def _describe_log_dirs() -> ApiHandler[DescribeLogDirsRequest, DescribeLogDirsResponse]:
    from sharegroup.broker.handlers import describe_log_dirs

    return ApiHandler(
        describe_log_dirs.handle,
        describe_log_dirs.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    )


def _create_partitions() -> ApiHandler[CreatePartitionsRequest, CreatePartitionsResponse]:
    from sharegroup.broker.handlers import create_partitions

    return ApiHandler(
        create_partitions.handle, create_partitions.refuse, checks=(required.ALTER_TOPICS,)
    )


def _delete_groups() -> ApiHandler[DeleteGroupsRequest, DeleteGroupsResponse]:
    from sharegroup.broker.handlers import delete_groups

    return ApiHandler(delete_groups.handle, delete_groups.refuse, checks=(required.DELETE_GROUPS,))


def _describe_acls() -> ApiHandler[DescribeAclsRequest, DescribeAclsResponse]:
    from sharegroup.broker.handlers import describe_acls

    return ApiHandler(
        describe_acls.handle,
        describe_acls.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    )


def _create_acls() -> ApiHandler[CreateAclsRequest, CreateAclsResponse]:
    from sharegroup.broker.handlers import create_acls

    return ApiHandler(create_acls.handle, create_acls.refuse, gates=(required.ALTER_CLUSTER,))


def _delete_acls() -> ApiHandler[DeleteAclsRequest, DeleteAclsResponse]:
    from sharegroup.broker.handlers import delete_acls

    return ApiHandler(delete_acls.handle, delete_acls.refuse, gates=(required.ALTER_CLUSTER,))


def _sasl_handshake() -> ApiHandler[SaslHandshakeRequest, SaslHandshakeResponse]:
    from sharegroup.broker.handlers import sasl_handshake

    return ApiHandler(sasl_handshake.handle, sasl_handshake.refuse)


def _sasl_authenticate() -> ApiHandler[SaslAuthenticateRequest, SaslAuthenticateResponse]:
    from sharegroup.broker.handlers import sasl_authenticate

    return ApiHandler(sasl_authenticate.handle, sasl_authenticate.refuse)


def _describe_user_scram_credentials() -> ApiHandler[
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
]:
    from sharegroup.broker.handlers import describe_user_scram_credentials

    return ApiHandler(
        describe_user_scram_credentials.handle,
        describe_user_scram_credentials.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    )


def _alter_user_scram_credentials() -> ApiHandler[
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
]:
    from sharegroup.broker.handlers import alter_user_scram_credentials

    return ApiHandler(
        alter_user_scram_credentials.handle,
        alter_user_scram_credentials.refuse,
        gates=(required.ALTER_CLUSTER,),
    )


def _elect_leaders() -> ApiHandler[ElectLeadersRequest, ElectLeadersResponse]:
    from sharegroup.broker.handlers import elect_leaders

    return ApiHandler(
        elect_leaders.handle,
        elect_leaders.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.ALTER_CLUSTER,),
    )


def _incremental_alter_configs() -> ApiHandler[
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
]:
    from sharegroup.broker.handlers import incremental_alter_configs

    return ApiHandler(
        incremental_alter_configs.handle,
        incremental_alter_configs.refuse,
        checks=(
            required.ALTER_CONFIGS_OF_TOPICS,
            required.ALTER_CONFIGS_OF_GROUPS,
            required.ALTER_CONFIGS_OF_CLUSTER,
        ),
    )


def _alter_partition_reassignments() -> ApiHandler[
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
]:
    from sharegroup.broker.handlers import alter_partition_reassignments

    return ApiHandler(
        alter_partition_reassignments.handle,
        alter_partition_reassignments.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.ALTER_CLUSTER,),
    )


def _list_partition_reassignments() -> ApiHandler[
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
]:
    from sharegroup.broker.handlers import list_partition_reassignments

    return ApiHandler(
        list_partition_reassignments.handle,
        list_partition_reassignments.refuse,
        gates=(required.DESCRIBE_CLUSTER,),
    )


def _offset_delete() -> ApiHandler[OffsetDeleteRequest, OffsetDeleteResponse]:
    from sharegroup.broker.handlers import offset_delete

    return ApiHandler(
        offset_delete.handle,
        offset_delete.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.DELETE_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _describe_client_quotas() -> ApiHandler[
    DescribeClientQuotasRequest, DescribeClientQuotasResponse
]:
    from sharegroup.broker.handlers import describe_client_quotas

    return ApiHandler(
        describe_client_quotas.handle,
        describe_client_quotas.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CONFIGS_OF_CLUSTER,),
    )


def _alter_client_quotas() -> ApiHandler[AlterClientQuotasRequest, AlterClientQuotasResponse]:
    from sharegroup.broker.handlers import alter_client_quotas

    return ApiHandler(
        alter_client_quotas.handle,
        alter_client_quotas.refuse,
        gates=(required.ALTER_CLIENT_QUOTAS,),
    )


def _describe_quorum() -> ApiHandler[DescribeQuorumRequest, DescribeQuorumResponse]:
    from sharegroup.broker.handlers import describe_quorum

    return ApiHandler(
        describe_quorum.handle,
        describe_quorum.refuse,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    )


def _update_features() -> ApiHandler[UpdateFeaturesRequest, UpdateFeaturesResponse]:
    from sharegroup.broker.handlers import update_features

    return ApiHandler(
        update_features.handle,
        update_features.refuse,
        is_native=True,
        gates=(required.ALTER_CLUSTER,),
    )


def _describe_cluster() -> ApiHandler[DescribeClusterRequest, DescribeClusterResponse]:
    from sharegroup.broker.handlers import describe_cluster

    return ApiHandler(
        describe_cluster.handle, describe_cluster.refuse, checks=(required.DESCRIBE_CLUSTER,)
    )


def _describe_producers() -> ApiHandler[DescribeProducersRequest, DescribeProducersResponse]:
    from sharegroup.broker.handlers import describe_producers

    return ApiHandler(
        describe_producers.handle,
        describe_producers.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.READ_TOPICS,),
    )


def _describe_transactions() -> ApiHandler[
    DescribeTransactionsRequest, DescribeTransactionsResponse
]:
    from sharegroup.broker.handlers import describe_transactions

    return ApiHandler(
        describe_transactions.handle,
        describe_transactions.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TRANSACTIONAL_IDS, required.DESCRIBE_TOPICS),
    )


def _list_transactions() -> ApiHandler[ListTransactionsRequest, ListTransactionsResponse]:
    from sharegroup.broker.handlers import list_transactions

    return ApiHandler(
        list_transactions.handle,
        list_transactions.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TRANSACTIONAL_IDS,),
    )


def _unregister_broker() -> ApiHandler[UnregisterBrokerRequest, UnregisterBrokerResponse]:
    from sharegroup.broker.handlers import unregister_broker

    return ApiHandler(
        unregister_broker.handle, unregister_broker.refuse, gates=(required.ALTER_CLUSTER,)
    )


def _consumer_group_heartbeat() -> ApiHandler[
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
]:
    from sharegroup.broker.handlers import consumer_group_heartbeat

    return ApiHandler(
        consumer_group_heartbeat.handle,
        consumer_group_heartbeat.refuse,
        gates=(required.READ_GROUP,),
        checks=(required.DESCRIBE_TOPICS,),
    )


def _consumer_group_describe() -> ApiHandler[
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
]:
    from sharegroup.broker.handlers import consumer_group_describe

    return ApiHandler(
        consumer_group_describe.handle,
        consumer_group_describe.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    )


def _get_telemetry_subscriptions() -> ApiHandler[
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
]:
    from sharegroup.broker.handlers import get_telemetry_subscriptions

    return ApiHandler(get_telemetry_subscriptions.handle, get_telemetry_subscriptions.refuse)


def _push_telemetry() -> ApiHandler[PushTelemetryRequest, PushTelemetryResponse]:
    from sharegroup.broker.handlers import push_telemetry

    return ApiHandler(push_telemetry.handle, push_telemetry.refuse)


def _list_config_resources() -> ApiHandler[ListConfigResourcesRequest, ListConfigResourcesResponse]:
    from sharegroup.broker.handlers import list_config_resources

    return ApiHandler(
        list_config_resources.handle,
        list_config_resources.refuse,
        gates=(required.DESCRIBE_CONFIGS_OF_CLUSTER,),
    )


def _describe_topic_partitions() -> ApiHandler[
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
]:
    from sharegroup.broker.handlers import describe_topic_partitions

    return ApiHandler(
        describe_topic_partitions.handle,
        describe_topic_partitions.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TOPICS,),
    )


def _share_group_heartbeat() -> ApiHandler[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]:
    from sharegroup.broker.handlers import share_group_heartbeat

    return ApiHandler(
        share_group_heartbeat.handle,
        share_group_heartbeat.refuse,
        gates=(required.READ_GROUP,),
        checks=(required.DESCRIBE_TOPICS,),
    )


def _share_group_describe() -> ApiHandler[ShareGroupDescribeRequest, ShareGroupDescribeResponse]:
    from sharegroup.broker.handlers import share_group_describe

    return ApiHandler(
        share_group_describe.handle,
        share_group_describe.refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    )


def _share_fetch() -> ApiHandler[ShareFetchRequest, ShareFetchResponse]:
    from sharegroup.broker.handlers import share_fetch

    return ApiHandler(
        share_fetch.handle,
        share_fetch.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        is_native=True,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _share_acknowledge() -> ApiHandler[ShareAcknowledgeRequest, ShareAcknowledgeResponse]:
    from sharegroup.broker.handlers import share_acknowledge

    return ApiHandler(
        share_acknowledge.handle,
        share_acknowledge.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _add_raft_voter() -> ApiHandler[AddRaftVoterRequest, AddRaftVoterResponse]:
    from sharegroup.broker.handlers import add_raft_voter

    return ApiHandler(add_raft_voter.handle, add_raft_voter.refuse, gates=(required.ALTER_CLUSTER,))


def _remove_raft_voter() -> ApiHandler[RemoveRaftVoterRequest, RemoveRaftVoterResponse]:
    from sharegroup.broker.handlers import remove_raft_voter

    return ApiHandler(
        remove_raft_voter.handle, remove_raft_voter.refuse, gates=(required.ALTER_CLUSTER,)
    )


def _initialize_share_group_state() -> ApiHandler[
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse
]:
    from sharegroup.broker.handlers import initialize_share_group_state

    return ApiHandler(
        initialize_share_group_state.handle,
        initialize_share_group_state.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.CLUSTER_ACTION,),
    )


def _read_share_group_state() -> ApiHandler[
    ReadShareGroupStateRequest, ReadShareGroupStateResponse
]:
    from sharegroup.broker.handlers import read_share_group_state

    return ApiHandler(
        read_share_group_state.handle,
        read_share_group_state.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.CLUSTER_ACTION,),
    )


def _write_share_group_state() -> ApiHandler[
    WriteShareGroupStateRequest, WriteShareGroupStateResponse
]:
    from sharegroup.broker.handlers import write_share_group_state

    return ApiHandler(
        write_share_group_state.handle,
        write_share_group_state.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.CLUSTER_ACTION,),
    )


def _delete_share_group_state() -> ApiHandler[
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
]:
    from sharegroup.broker.handlers import delete_share_group_state

    return ApiHandler(
        delete_share_group_state.handle,
        delete_share_group_state.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.CLUSTER_ACTION,),
    )


def _read_share_group_state_summary() -> ApiHandler[
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse
]:
    from sharegroup.broker.handlers import read_share_group_state_summary

    return ApiHandler(
        read_share_group_state_summary.handle,
        read_share_group_state_summary.refuse,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.CLUSTER_ACTION,),
    )


def _describe_share_group_offsets() -> ApiHandler[
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
]:
    from sharegroup.broker.handlers import describe_share_group_offsets

    return ApiHandler(
        describe_share_group_offsets.handle,
        describe_share_group_offsets.refuse,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    )


def _alter_share_group_offsets() -> ApiHandler[
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
]:
    from sharegroup.broker.handlers import alter_share_group_offsets

    return ApiHandler(
        alter_share_group_offsets.handle,
        alter_share_group_offsets.refuse,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _delete_share_group_offsets() -> ApiHandler[
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
]:
    from sharegroup.broker.handlers import delete_share_group_offsets

    return ApiHandler(
        delete_share_group_offsets.handle,
        delete_share_group_offsets.refuse,
        gates=(required.DELETE_GROUP,),
        checks=(required.READ_TOPICS,),
    )


def _unregister_controller() -> ApiHandler[
    UnregisterControllerRequest, UnregisterControllerResponse
]:
    from sharegroup.broker.handlers import unregister_controller

    return ApiHandler(
        unregister_controller.handle, unregister_controller.refuse, gates=(required.ALTER_CLUSTER,)
    )


HANDLERS: dict[int, Callable[[], AnyHandler]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: _describe_groups,
    16: _list_groups,
    17: _sasl_handshake,
    18: _api_versions,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    25: _add_offsets_to_txn,
    26: _end_txn,
    27: _write_txn_markers,
    28: _txn_offset_commit,
    29: _describe_acls,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    34: _alter_replica_log_dirs,
    35: _describe_log_dirs,
    36: _sasl_authenticate,
    37: _create_partitions,
    42: _delete_groups,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_partition_reassignments,
    46: _list_partition_reassignments,
    47: _offset_delete,
    48: _describe_client_quotas,
    49: _alter_client_quotas,
    50: _describe_user_scram_credentials,
    51: _alter_user_scram_credentials,
    55: _describe_quorum,
    57: _update_features,
    60: _describe_cluster,
    61: _describe_producers,
    64: _unregister_broker,
    65: _describe_transactions,
    66: _list_transactions,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
    71: _get_telemetry_subscriptions,
    72: _push_telemetry,
    74: _list_config_resources,
    75: _describe_topic_partitions,
    76: _share_group_heartbeat,
    77: _share_group_describe,
    78: _share_fetch,
    79: _share_acknowledge,
    80: _add_raft_voter,
    81: _remove_raft_voter,
    83: _initialize_share_group_state,
    84: _read_share_group_state,
    85: _write_share_group_state,
    86: _delete_share_group_state,
    87: _read_share_group_state_summary,
    90: _describe_share_group_offsets,
    91: _alter_share_group_offsets,
    92: _delete_share_group_offsets,
    94: _unregister_controller,
}
"""By API key: imports the module of a handler, and returns its functions."""
