"""Requests about brokers and controllers: log directories, the metadata quorum, features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import DescribeLogDirsResult
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import ReplicaState
from kio.schema.types import TopicName as KioTopicName
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.static.primitive import i8, i16, i32

import sharegroup
from sharegroup.client.admin.calls import ask_any, call, check, known, outcome, timeout_of
from sharegroup.client.admin.types import (
    FeatureRange,
    Features,
    FeatureUpdate,
    LogDirDescription,
    MetadataQuorum,
    QuorumReplica,
    ReplicaLog,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import NONE, InvalidRequest, KafkaError, UnknownServerError
from sharegroup.wire.codec.apis import APIS
from sharegroup.wire.messages.api_versions_v5 import ApiVersionsRequest, ApiVersionsResponse

METADATA_TOPIC = "__cluster_metadata"

LogDirs = dict[str, LogDirDescription | KafkaError]


@call
async def describe_log_dirs(
    cluster: Cluster, node_ids: Iterable[int] | None = None, *, timeout: float | None = None
) -> dict[int, dict[str, LogDirDescription | KafkaError] | KafkaError]:
    """Describe the log directories of these brokers, or of all: sizes of logs, room on disk.

    The result is by node id and path.

    The result of a broker that does not answer is its error.
    """
    await _learn_brokers(cluster)
    nodes_to_ask = tuple(cluster.nodes) if node_ids is None else tuple(node_ids)
    results: dict[int, LogDirs | KafkaError] = {}
    for node_id in nodes_to_ask:
        try:
            results[node_id] = await _log_dirs(cluster, node_id)
        except KafkaError as error:
            results[node_id] = error
    return results


async def _ask(cluster: Cluster, node_id: int, request: Any, *, subject: str) -> Any:
    """Send a request to one broker of the cluster; retry until the timeout of the call."""
    if node_id not in cluster.nodes:
        known_ids = ", ".join(map(str, sorted(cluster.nodes)))
        raise InvalidRequest(f"broker {node_id} is not in the cluster; its brokers are {known_ids}")

    async def attempt() -> Any:
        return await (await cluster.connection(node_id)).request(request)

    return await cluster.retrying(attempt, subject=f"{subject} of broker {node_id}")


async def _learn_brokers(cluster: Cluster) -> None:
    await cluster.retrying(lambda: cluster.refresh(()), subject="the brokers of the cluster")


async def _log_dirs(cluster: Cluster, node_id: int) -> LogDirs:
    request = DescribeLogDirsRequest(topics=None)  # All topics.
    response = await _ask(cluster, node_id, request, subject="describe_log_dirs")
    check(cluster, response, "DESCRIBE", node=node_id)
    return {
        log_dir.log_dir: outcome(cluster, log_dir, "DESCRIBE", log_dir=log_dir.log_dir)
        or _log_dir(log_dir)
        for log_dir in response.results
    }


def _log_dir(log_dir: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        {
            TopicPartition(str(topic.name), int(partition.partition_index)): ReplicaLog(
                int(partition.partition_size), int(partition.offset_lag), partition.is_future_key
            )
            for topic in log_dir.topics
            for partition in topic.partitions
        },
        known(log_dir.total_bytes),
        known(log_dir.usable_bytes),
    )


@call
async def describe_metadata_quorum(
    cluster: Cluster, *, timeout: float | None = None
) -> MetadataQuorum:
    """Describe the leader and the replicas of the cluster's metadata, the controllers."""
    request = DescribeQuorumRequest(
        topics=(
            TopicData(
                topic_name=KioTopicName(METADATA_TOPIC),
                partitions=(PartitionData(partition_index=i32(0)),),
            ),
        )
    )
    response = await ask_any(cluster, request, subject="describe_metadata_quorum")
    parts = [partition for topic in response.topics for partition in topic.partitions]
    if response.error_code == NONE and len(parts) != 1:
        raise UnknownServerError(
            f"describe_metadata_quorum: expected one partition, the broker answered {len(parts)}"
        )
    for answer in (response, *parts):
        check(cluster, answer, "DESCRIBE", request="describe_metadata_quorum")
    (quorum,) = parts
    return MetadataQuorum(
        int(quorum.leader_id),
        int(quorum.leader_epoch),
        int(quorum.high_watermark),
        tuple(map(_replica, quorum.current_voters)),
        tuple(map(_replica, quorum.observers)),
    )


def _replica(replica: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        int(replica.replica_id),
        int(replica.log_end_offset),
        known(replica.last_fetch_timestamp),
        known(replica.last_caught_up_timestamp),
    )


# Features: the levels that brokers support and those in effect (KIP-584). The feature of share
# groups is ``share.version``.


UNKNOWN_EPOCH = -1


@call
async def describe_features(
    cluster: Cluster, node_id: int | None = None, *, timeout: float | None = None
) -> Features:
    """Return the feature levels that a broker supports and those in effect.

    The answer to ApiVersions contains them (KIP-584); it is the answer of a single broker: of this
    one, or of any.
    """
    response = await _api_versions(cluster, node_id, subject="describe_features")
    epoch = response.finalized_features_epoch
    return Features(
        {
            feature.name: FeatureRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
        },
        {feature.name: int(feature.max_version_level) for feature in response.finalized_features},
        None if epoch == UNKNOWN_EPOCH else int(epoch),
    )


@call
async def describe_api_versions(
    cluster: Cluster, node_id: int | None = None, *, timeout: float | None = None
) -> dict[str, FeatureRange]:
    """Return the requests that a broker serves, by name, with their oldest and newest versions.

    It is the answer of a single broker: of this one, or of any. A request that this client does
    not know has a number as its name.
    """
    response = await _api_versions(cluster, node_id, subject="describe_api_versions")
    return {
        APIS[served.api_key].name if served.api_key in APIS else str(served.api_key): FeatureRange(
            int(served.min_version), int(served.max_version)
        )
        for served in response.api_keys
    }


async def _api_versions(
    cluster: Cluster, node_id: int | None, *, subject: str
) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name="sharegroup", client_software_version=sharegroup.__version__
    )
    response: ApiVersionsResponse
    if node_id is None:
        response = await ask_any(cluster, request, subject=subject)
    else:
        if node_id not in cluster.nodes:
            await _learn_brokers(cluster)
        response = await _ask(cluster, node_id, request, subject=subject)
    check(cluster, response, request=subject)
    return response


@call
async def update_features(
    cluster: Cluster,
    updates: Mapping[str, FeatureUpdate],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> dict[str, KafkaError | None]:
    """Change the levels of features, either all of them or none.

    The broker changes all features or none, so every feature has the same result.
    """
    request = UpdateFeaturesRequest(
        timeout=timeout_of(cluster),
        feature_updates=tuple(
            FeatureUpdateKey(
                feature=name,
                max_version_level=i16(update.max_version_level),
                upgrade_type=i8(update.upgrade_type),
            )
            for name, update in updates.items()
        ),
        validate_only=validate_only,
    )
    response = await ask_any(cluster, request, subject="update_features")
    # There is one answer for all features: they are changed together or not at all.
    return {name: outcome(cluster, response, "ALTER", feature=name) for name in updates}
