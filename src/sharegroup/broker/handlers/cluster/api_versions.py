"""ApiVersions (18): lists the APIs and versions that this broker serves, and its features."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i64

from sharegroup.broker.cluster.features import FEATURES
from sharegroup.broker.handler_contract import NO_THROTTLE, ApiHandler, RequestContext, error_code
from sharegroup.broker.handlers.parts import (
    HasClientTelemetry,
    HasConfig,
    HasFeatures,
    HasNode,
    HasShareStateSwitch,
    HasTopics,
)
from sharegroup.errors import InvalidRequest, KafkaError, RebootstrapRequired
from sharegroup.protocol_enums import DELAY_FEATURE
from sharegroup.wire.codec.apis import APIS, Api
from sharegroup.wire.messages.api_versions_v5 import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

VERSION_WITH_LEVEL_0 = 4
"""The first version whose clients can read a range of levels from 0 (KAFKA-17492).

In older versions the response leaves out features with such a range.
"""

VERSION_WITH_SOFTWARE = 3
"""The first version in which a client names its software (KIP-511)."""

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""A valid name, and a valid version, of a client's software."""

OWN_FEATURE = SupportedFeatureKey(name=DELAY_FEATURE, min_version=i16(1), max_version=i16(1))
"""Tells our clients that released records may have a delay (ADR 0061); it is never finalized."""

UNKNOWN_NODE = -1

TELEMETRY_APIS = (71, 72)


class ApiVersionsParts(
    HasClientTelemetry, HasConfig, HasFeatures, HasNode, HasShareStateSwitch, HasTopics, Protocol
):
    """What these requests touch of the broker."""


def handle(
    parts: ApiVersionsParts, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """List the APIs and features, without those that this client or this broker cannot use."""
    if context.api_version >= VERSION_WITH_SOFTWARE:
        _check_software(request)
        parts.client_telemetry.note_software(
            context.connection_id,
            request.client_software_name,
            request.client_software_version,
        )
    _check_target(parts, request)
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(_entry(api) for api in APIS.values() if _is_advertised(parts, api)),
        throttle_time=NO_THROTTLE,
        supported_features=(*_supported_features(context.api_version), OWN_FEATURE),
        finalized_features_epoch=i64(parts.features.epoch),
        finalized_features=tuple(
            FinalizedFeatureKey(
                name=name, min_version_level=i16(level), max_version_level=i16(level)
            )
            for name, level in parts.features.finalized.items()
        ),
    )


def _supported_features(api_version: int) -> Iterator[SupportedFeatureKey]:
    for feature in FEATURES:
        if feature.oldest > 0 or api_version >= VERSION_WITH_LEVEL_0:
            yield SupportedFeatureKey(
                name=feature.name, min_version=i16(feature.oldest), max_version=i16(feature.newest)
            )


def refuse(request: ApiVersionsRequest | None, error: KafkaError) -> ApiVersionsResponse:
    """Return an error that lists ApiVersions, so the client can retry in a supported version."""
    return ApiVersionsResponse(
        error_code=error_code(error), api_keys=(_entry(APIS[18]),), throttle_time=NO_THROTTLE
    )


def _is_advertised(parts: ApiVersionsParts, api: Api) -> bool:
    """Return whether clients may use an API here.

    The APIs between brokers need an authorizer or a setting (ADR 0010).  Telemetry needs a metrics
    endpoint, or a resource that asks for it.  Without both, librdkafka would log a line for each
    client in vain.
    """
    if api.key in TELEMETRY_APIS:
        is_shown = parts.config.server.metrics_port >= 0
        return is_shown or parts.client_telemetry.has_subscriptions
    return not api.between_brokers or parts.serves_share_state


def _check_software(request: ApiVersionsRequest) -> None:
    for text in (request.client_software_name, request.client_software_version):
        if SOFTWARE.fullmatch(text) is None:
            raise InvalidRequest(
                f"{text[:100]!r} cannot be the name or version of a client's software; letters, "
                "digits, '-' and '.' are allowed, with a letter or digit at both ends"
            )


def _check_target(parts: ApiVersionsParts, request: ApiVersionsRequest) -> None:
    """Raise an error unless this is the broker that the client expects here (KIP-1242)."""
    cluster_id, node_id = request.cluster_id, request.node_id
    if (cluster_id is None) != (node_id == UNKNOWN_NODE):
        raise InvalidRequest(
            f"cluster id {cluster_id!r} and node id {node_id}: both are given, or neither"
        )
    if cluster_id is None:
        return
    own = parts.topics.catalog.cluster_id, parts.node.node_id
    if (cluster_id, node_id) != own:
        raise RebootstrapRequired(
            f"this is node {own[1]} of cluster {own[0]!r}, not node {node_id} of {cluster_id!r}"
        )


def _entry(api: Api) -> ApiVersion:
    return ApiVersion(
        api_key=i16(api.key), min_version=i16(api.oldest_advertised), max_version=i16(api.newest)
    )


SERVED = {
    18: ApiHandler(
        handle,
        refuse,
    )
}
