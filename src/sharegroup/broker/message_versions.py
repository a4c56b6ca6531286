"""The types of messages in every served version, for handlers that are native.

Such a handler takes a request, and returns the response, in the version of the client
(`handler_contract.ApiHandler.is_native`).  Other handlers need the older versions of a request
(``Older...``) to convert it.  Each type is the union of kio's classes from the oldest to
the newest version in `wire.apis`; a test compares them.

Import this module for type checkers only (``if TYPE_CHECKING``).  At run time a broker imports the
versions that its clients use, because all of them together take 150 ms to import.
"""

from __future__ import annotations

from kio.schema.add_partitions_to_txn import v0 as add_partitions_to_txn_v0
from kio.schema.add_partitions_to_txn import v1 as add_partitions_to_txn_v1
from kio.schema.add_partitions_to_txn import v2 as add_partitions_to_txn_v2
from kio.schema.add_partitions_to_txn import v3 as add_partitions_to_txn_v3
from kio.schema.add_partitions_to_txn import v4 as add_partitions_to_txn_v4
from kio.schema.delete_topics import v1 as delete_topics_v1
from kio.schema.delete_topics import v2 as delete_topics_v2
from kio.schema.delete_topics import v3 as delete_topics_v3
from kio.schema.delete_topics import v4 as delete_topics_v4
from kio.schema.delete_topics import v5 as delete_topics_v5
from kio.schema.fetch import v4 as fetch_v4
from kio.schema.fetch import v5 as fetch_v5
from kio.schema.fetch import v6 as fetch_v6
from kio.schema.fetch import v7 as fetch_v7
from kio.schema.fetch import v8 as fetch_v8
from kio.schema.fetch import v9 as fetch_v9
from kio.schema.fetch import v10 as fetch_v10
from kio.schema.fetch import v11 as fetch_v11
from kio.schema.fetch import v12 as fetch_v12
from kio.schema.fetch import v13 as fetch_v13
from kio.schema.fetch import v14 as fetch_v14
from kio.schema.fetch import v15 as fetch_v15
from kio.schema.fetch import v16 as fetch_v16
from kio.schema.fetch import v17 as fetch_v17
from kio.schema.fetch import v18 as fetch_v18
from kio.schema.find_coordinator import v0 as find_coordinator_v0
from kio.schema.find_coordinator import v1 as find_coordinator_v1
from kio.schema.find_coordinator import v2 as find_coordinator_v2
from kio.schema.find_coordinator import v3 as find_coordinator_v3
from kio.schema.find_coordinator import v4 as find_coordinator_v4
from kio.schema.find_coordinator import v5 as find_coordinator_v5
from kio.schema.leave_group import v0 as leave_group_v0
from kio.schema.leave_group import v1 as leave_group_v1
from kio.schema.leave_group import v2 as leave_group_v2
from kio.schema.leave_group import v3 as leave_group_v3
from kio.schema.leave_group import v4 as leave_group_v4
from kio.schema.offset_commit import v2 as offset_commit_v2
from kio.schema.offset_commit import v3 as offset_commit_v3
from kio.schema.offset_commit import v4 as offset_commit_v4
from kio.schema.offset_commit import v5 as offset_commit_v5
from kio.schema.offset_commit import v6 as offset_commit_v6
from kio.schema.offset_commit import v7 as offset_commit_v7
from kio.schema.offset_commit import v8 as offset_commit_v8
from kio.schema.offset_commit import v9 as offset_commit_v9
from kio.schema.offset_commit import v10 as offset_commit_v10
from kio.schema.offset_fetch import v1 as offset_fetch_v1
from kio.schema.offset_fetch import v2 as offset_fetch_v2
from kio.schema.offset_fetch import v3 as offset_fetch_v3
from kio.schema.offset_fetch import v4 as offset_fetch_v4
from kio.schema.offset_fetch import v5 as offset_fetch_v5
from kio.schema.offset_fetch import v6 as offset_fetch_v6
from kio.schema.offset_fetch import v7 as offset_fetch_v7
from kio.schema.offset_fetch import v8 as offset_fetch_v8
from kio.schema.offset_fetch import v9 as offset_fetch_v9
from kio.schema.offset_fetch import v10 as offset_fetch_v10
from kio.schema.produce import v3 as produce_v3
from kio.schema.produce import v4 as produce_v4
from kio.schema.produce import v5 as produce_v5
from kio.schema.produce import v6 as produce_v6
from kio.schema.produce import v7 as produce_v7
from kio.schema.produce import v8 as produce_v8
from kio.schema.produce import v9 as produce_v9
from kio.schema.produce import v10 as produce_v10
from kio.schema.produce import v11 as produce_v11
from kio.schema.produce import v12 as produce_v12
from kio.schema.produce import v13 as produce_v13
from kio.schema.share_fetch import v1 as share_fetch_v1
from kio.schema.share_fetch import v2 as share_fetch_v2
from kio.schema.txn_offset_commit import v0 as txn_offset_commit_v0
from kio.schema.txn_offset_commit import v1 as txn_offset_commit_v1
from kio.schema.txn_offset_commit import v2 as txn_offset_commit_v2
from kio.schema.txn_offset_commit import v3 as txn_offset_commit_v3
from kio.schema.txn_offset_commit import v4 as txn_offset_commit_v4
from kio.schema.txn_offset_commit import v5 as txn_offset_commit_v5
from kio.schema.update_features import v0 as update_features_v0
from kio.schema.update_features import v1 as update_features_v1
from kio.schema.update_features import v2 as update_features_v2

from sharegroup.wire.messages import txn_offset_commit_v6

ProduceRequest = (
    produce_v3.ProduceRequest
    | produce_v4.ProduceRequest
    | produce_v5.ProduceRequest
    | produce_v6.ProduceRequest
    | produce_v7.ProduceRequest
    | produce_v8.ProduceRequest
    | produce_v9.ProduceRequest
    | produce_v10.ProduceRequest
    | produce_v11.ProduceRequest
    | produce_v12.ProduceRequest
    | produce_v13.ProduceRequest
)

TopicProduceData = (
    produce_v3.request.TopicProduceData
    | produce_v4.request.TopicProduceData
    | produce_v5.request.TopicProduceData
    | produce_v6.request.TopicProduceData
    | produce_v7.request.TopicProduceData
    | produce_v8.request.TopicProduceData
    | produce_v9.request.TopicProduceData
    | produce_v10.request.TopicProduceData
    | produce_v11.request.TopicProduceData
    | produce_v12.request.TopicProduceData
    | produce_v13.request.TopicProduceData
)

PartitionProduceData = (
    produce_v3.request.PartitionProduceData
    | produce_v4.request.PartitionProduceData
    | produce_v5.request.PartitionProduceData
    | produce_v6.request.PartitionProduceData
    | produce_v7.request.PartitionProduceData
    | produce_v8.request.PartitionProduceData
    | produce_v9.request.PartitionProduceData
    | produce_v10.request.PartitionProduceData
    | produce_v11.request.PartitionProduceData
    | produce_v12.request.PartitionProduceData
    | produce_v13.request.PartitionProduceData
)

ProduceResponse = (
    produce_v3.ProduceResponse
    | produce_v4.ProduceResponse
    | produce_v5.ProduceResponse
    | produce_v6.ProduceResponse
    | produce_v7.ProduceResponse
    | produce_v8.ProduceResponse
    | produce_v9.ProduceResponse
    | produce_v10.ProduceResponse
    | produce_v11.ProduceResponse
    | produce_v12.ProduceResponse
    | produce_v13.ProduceResponse
)

FetchRequest = (
    fetch_v4.FetchRequest
    | fetch_v5.FetchRequest
    | fetch_v6.FetchRequest
    | fetch_v7.FetchRequest
    | fetch_v8.FetchRequest
    | fetch_v9.FetchRequest
    | fetch_v10.FetchRequest
    | fetch_v11.FetchRequest
    | fetch_v12.FetchRequest
    | fetch_v13.FetchRequest
    | fetch_v14.FetchRequest
    | fetch_v15.FetchRequest
    | fetch_v16.FetchRequest
    | fetch_v17.FetchRequest
    | fetch_v18.FetchRequest
)

FetchResponse = (
    fetch_v4.FetchResponse
    | fetch_v5.FetchResponse
    | fetch_v6.FetchResponse
    | fetch_v7.FetchResponse
    | fetch_v8.FetchResponse
    | fetch_v9.FetchResponse
    | fetch_v10.FetchResponse
    | fetch_v11.FetchResponse
    | fetch_v12.FetchResponse
    | fetch_v13.FetchResponse
    | fetch_v14.FetchResponse
    | fetch_v15.FetchResponse
    | fetch_v16.FetchResponse
    | fetch_v17.FetchResponse
    | fetch_v18.FetchResponse
)

OffsetCommitRequest = (
    offset_commit_v2.OffsetCommitRequest
    | offset_commit_v3.OffsetCommitRequest
    | offset_commit_v4.OffsetCommitRequest
    | offset_commit_v5.OffsetCommitRequest
    | offset_commit_v6.OffsetCommitRequest
    | offset_commit_v7.OffsetCommitRequest
    | offset_commit_v8.OffsetCommitRequest
    | offset_commit_v9.OffsetCommitRequest
    | offset_commit_v10.OffsetCommitRequest
)

OffsetCommitRequestTopic = (
    offset_commit_v2.request.OffsetCommitRequestTopic
    | offset_commit_v3.request.OffsetCommitRequestTopic
    | offset_commit_v4.request.OffsetCommitRequestTopic
    | offset_commit_v5.request.OffsetCommitRequestTopic
    | offset_commit_v6.request.OffsetCommitRequestTopic
    | offset_commit_v7.request.OffsetCommitRequestTopic
    | offset_commit_v8.request.OffsetCommitRequestTopic
    | offset_commit_v9.request.OffsetCommitRequestTopic
    | offset_commit_v10.request.OffsetCommitRequestTopic
)

OffsetCommitRequestPartition = (
    offset_commit_v2.request.OffsetCommitRequestPartition
    | offset_commit_v3.request.OffsetCommitRequestPartition
    | offset_commit_v4.request.OffsetCommitRequestPartition
    | offset_commit_v5.request.OffsetCommitRequestPartition
    | offset_commit_v6.request.OffsetCommitRequestPartition
    | offset_commit_v7.request.OffsetCommitRequestPartition
    | offset_commit_v8.request.OffsetCommitRequestPartition
    | offset_commit_v9.request.OffsetCommitRequestPartition
    | offset_commit_v10.request.OffsetCommitRequestPartition
)

OffsetCommitResponse = (
    offset_commit_v2.OffsetCommitResponse
    | offset_commit_v3.OffsetCommitResponse
    | offset_commit_v4.OffsetCommitResponse
    | offset_commit_v5.OffsetCommitResponse
    | offset_commit_v6.OffsetCommitResponse
    | offset_commit_v7.OffsetCommitResponse
    | offset_commit_v8.OffsetCommitResponse
    | offset_commit_v9.OffsetCommitResponse
    | offset_commit_v10.OffsetCommitResponse
)

OffsetFetchRequest = (
    offset_fetch_v1.OffsetFetchRequest
    | offset_fetch_v2.OffsetFetchRequest
    | offset_fetch_v3.OffsetFetchRequest
    | offset_fetch_v4.OffsetFetchRequest
    | offset_fetch_v5.OffsetFetchRequest
    | offset_fetch_v6.OffsetFetchRequest
    | offset_fetch_v7.OffsetFetchRequest
    | offset_fetch_v8.OffsetFetchRequest
    | offset_fetch_v9.OffsetFetchRequest
    | offset_fetch_v10.OffsetFetchRequest
)

OffsetFetchRequestTopic = (
    offset_fetch_v1.request.OffsetFetchRequestTopic
    | offset_fetch_v2.request.OffsetFetchRequestTopic
    | offset_fetch_v3.request.OffsetFetchRequestTopic
    | offset_fetch_v4.request.OffsetFetchRequestTopic
    | offset_fetch_v5.request.OffsetFetchRequestTopic
    | offset_fetch_v6.request.OffsetFetchRequestTopic
    | offset_fetch_v7.request.OffsetFetchRequestTopic
    | offset_fetch_v8.request.OffsetFetchRequestTopics
    | offset_fetch_v9.request.OffsetFetchRequestTopics
    | offset_fetch_v10.request.OffsetFetchRequestTopics
)

OffsetFetchResponse = (
    offset_fetch_v8.OffsetFetchResponse
    | offset_fetch_v9.OffsetFetchResponse
    | offset_fetch_v10.OffsetFetchResponse
)
"""The versions with groups; the handler converts them to the older ones."""

TxnOffsetCommitRequest = (
    txn_offset_commit_v0.TxnOffsetCommitRequest
    | txn_offset_commit_v1.TxnOffsetCommitRequest
    | txn_offset_commit_v2.TxnOffsetCommitRequest
    | txn_offset_commit_v3.TxnOffsetCommitRequest
    | txn_offset_commit_v4.TxnOffsetCommitRequest
    | txn_offset_commit_v5.TxnOffsetCommitRequest
    | txn_offset_commit_v6.TxnOffsetCommitRequest
)

TxnOffsetCommitRequestTopic = (
    txn_offset_commit_v0.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v1.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v2.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v3.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v4.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v5.request.TxnOffsetCommitRequestTopic
    | txn_offset_commit_v6.TxnOffsetCommitRequestTopic
)

TxnOffsetCommitRequestPartition = (
    txn_offset_commit_v0.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v1.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v2.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v3.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v4.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v5.request.TxnOffsetCommitRequestPartition
    | txn_offset_commit_v6.TxnOffsetCommitRequestPartition
)

TxnOffsetCommitResponse = (
    txn_offset_commit_v0.TxnOffsetCommitResponse
    | txn_offset_commit_v1.TxnOffsetCommitResponse
    | txn_offset_commit_v2.TxnOffsetCommitResponse
    | txn_offset_commit_v3.TxnOffsetCommitResponse
    | txn_offset_commit_v4.TxnOffsetCommitResponse
    | txn_offset_commit_v5.TxnOffsetCommitResponse
    | txn_offset_commit_v6.TxnOffsetCommitResponse
)

UpdateFeaturesRequest = (
    update_features_v0.UpdateFeaturesRequest
    | update_features_v1.UpdateFeaturesRequest
    | update_features_v2.UpdateFeaturesRequest
)

FeatureUpdateKey = (
    update_features_v0.request.FeatureUpdateKey
    | update_features_v1.request.FeatureUpdateKey
    | update_features_v2.request.FeatureUpdateKey
)

UpdateFeaturesResponse = (
    update_features_v0.UpdateFeaturesResponse
    | update_features_v1.UpdateFeaturesResponse
    | update_features_v2.UpdateFeaturesResponse
)

ShareFetchRequest = share_fetch_v1.ShareFetchRequest | share_fetch_v2.ShareFetchRequest

ShareFetchResponse = share_fetch_v1.ShareFetchResponse | share_fetch_v2.ShareFetchResponse

OlderAddPartitionsToTxnRequest = (
    add_partitions_to_txn_v0.AddPartitionsToTxnRequest
    | add_partitions_to_txn_v1.AddPartitionsToTxnRequest
    | add_partitions_to_txn_v2.AddPartitionsToTxnRequest
    | add_partitions_to_txn_v3.AddPartitionsToTxnRequest
    | add_partitions_to_txn_v4.AddPartitionsToTxnRequest
)

OlderDeleteTopicsRequest = (
    delete_topics_v1.DeleteTopicsRequest
    | delete_topics_v2.DeleteTopicsRequest
    | delete_topics_v3.DeleteTopicsRequest
    | delete_topics_v4.DeleteTopicsRequest
    | delete_topics_v5.DeleteTopicsRequest
)

OlderFindCoordinatorRequest = (
    find_coordinator_v0.FindCoordinatorRequest
    | find_coordinator_v1.FindCoordinatorRequest
    | find_coordinator_v2.FindCoordinatorRequest
    | find_coordinator_v3.FindCoordinatorRequest
    | find_coordinator_v4.FindCoordinatorRequest
    | find_coordinator_v5.FindCoordinatorRequest
)

OlderLeaveGroupRequest = (
    leave_group_v0.LeaveGroupRequest
    | leave_group_v1.LeaveGroupRequest
    | leave_group_v2.LeaveGroupRequest
    | leave_group_v3.LeaveGroupRequest
    | leave_group_v4.LeaveGroupRequest
)
