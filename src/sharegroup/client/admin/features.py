"""Describes and updates features: the levels that brokers support and those in effect (KIP-584).

The feature of share groups is ``share.version``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.static.primitive import i8, i16

import sharegroup
from sharegroup.client.admin.topics import ask_any, outcome, timeout_of
from sharegroup.client.admin.types import FeatureRange, Features, FeatureUpdate
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.refusals import refused
from sharegroup.errors import NONE, KafkaError
from sharegroup.wire.messages.api_versions_v5 import ApiVersionsRequest

UNKNOWN_EPOCH = -1


async def describe_features(cluster: Cluster) -> Features:
    """Return the feature levels that a broker supports and the cluster's finalized levels.

    The answer to ApiVersions contains them (KIP-584); it is the answer of a single broker.
    """
    request = ApiVersionsRequest(
        client_software_name="sharegroup", client_software_version=sharegroup.__version__
    )
    response = await ask_any(cluster, request, subject="describe_features")
    if response.error_code != NONE:
        raise refused(response.error_code, None, request="describe_features")
    epoch = response.finalized_features_epoch
    return Features(
        {
            feature.name: FeatureRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
        },
        {feature.name: int(feature.max_version_level) for feature in response.finalized_features},
        None if epoch == UNKNOWN_EPOCH else int(epoch),
    )


async def update_features(
    cluster: Cluster, updates: Mapping[str, FeatureUpdate], *, validate_only: bool
) -> dict[str, KafkaError | None]:
    """Change the finalized levels of features; the result of a feature is None or the error.

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
    return {
        name: outcome(
            cluster, response.error_code, response.error_message, operation="ALTER", feature=name
        )
        for name in updates
    }
