"""Requests about the cluster (57, 60): its broker, and the levels of its features."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import operations_on_cluster
from sharegroup.broker.cluster.features import Update
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasFeatures, HasGroupSettings, HasNode, HasTopics
from sharegroup.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from sharegroup.protocol_enums import UpgradeType
from sharegroup.wire.codec.apis import response_module

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest
    from kio.schema.update_features.v2.response import UpdateFeaturesResponse


BROKERS, CONTROLLERS = 1, 2
"""The types of endpoints that a client may ask for (KIP-919)."""


class ClusterParts(HasFeatures, HasGroupSettings, HasNode, HasTopics, Protocol):
    """What these requests touch of the broker."""


def describe_cluster(
    parts: ClusterParts, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """DescribeCluster (60): describes the cluster, which has one broker."""
    if request.endpoint_type != BROKERS:
        raise _wrong_endpoint(request.endpoint_type)
    node = parts.node
    broker = DescribeClusterBroker(
        broker_id=BrokerId(node.node_id),
        host=node.host,
        port=i32(node.port),
        rack=node.rack,
        is_fenced=False,
    )
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        endpoint_type=request.endpoint_type,
        cluster_id=parts.topics.catalog.cluster_id,
        controller_id=BrokerId(node.node_id),
        brokers=(broker,),
        cluster_authorized_operations=operations_on_cluster(context.rights, request),
    )


def _wrong_endpoint(endpoint_type: int) -> KafkaError:
    if endpoint_type == CONTROLLERS:
        return MismatchedEndpointType(
            "this listener is for clients of brokers; the controller has no listener of its own"
        )
    return UnsupportedEndpointType(
        f"endpoint type {endpoint_type} is not known; expected 1 for brokers"
    )


log = logging.getLogger(__name__)

API_KEY = 57

VERSION_WITHOUT_RESULTS = 2


def update_features(
    parts: ClusterParts, context: RequestContext, request: UpdateFeaturesRequest
) -> Later[UpdateFeaturesResponse]:
    """UpdateFeatures (57): changes the finalized levels of features, either all or none.

    It is native: versions differ in the kinds of downgrades, and version 2 has one result for all
    features.
    """
    return Later(_update_all(parts, request))


async def _update_all(
    parts: ClusterParts, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    updates = tuple(map(_update, request.feature_updates))
    if getattr(request, "validate_only", False):  # Version 0 has no such field.
        parts.features.changed(updates)
    else:
        await parts.topics.alter(lambda: parts.features.changed(updates))
        parts.group_settings.all_changed()
        parts.features.happened()
        log.info(
            "event=features epoch=%d levels=%s", parts.features.epoch, parts.features.finalized
        )
    return _response(request, ErrorCode.none, None)


def refuse_update_features(
    request: UpdateFeaturesRequest, error: KafkaError
) -> UpdateFeaturesResponse:
    message = f"no feature was updated: {error}"
    return _response(request, error_code(error), message)


def _update(wanted: Any) -> Update:
    """Return one update; the only kind of downgrade in version 0 is now the safe one."""
    if hasattr(wanted, "upgrade_type"):
        upgrade_type = int(wanted.upgrade_type)
    else:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    return Update(wanted.feature, int(wanted.max_version_level), upgrade_type)


def _response(
    request: UpdateFeaturesRequest, code: ErrorCode, message: str | None
) -> UpdateFeaturesResponse:
    """Return the response in the request's version; on an error it lists no features."""
    version = int(request.__version__)
    module = response_module(API_KEY, version)
    fields: dict[str, Any] = {}
    if version < VERSION_WITHOUT_RESULTS:
        fields["results"] = tuple(
            module.UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.none, error_message=None
            )
            for update in (request.feature_updates if code == ErrorCode.none else ())
        )
    response: UpdateFeaturesResponse = module.UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message, **fields
    )
    return response


SERVED = {
    60: ApiHandler(
        describe_cluster,
        checks=(required.DESCRIBE_CLUSTER,),
    ),
    57: ApiHandler(
        update_features,
        refuse_update_features,
        gates=(required.ALTER_CLUSTER,),
        is_native=True,
    ),
}
