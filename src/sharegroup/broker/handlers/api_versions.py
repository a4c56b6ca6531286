"""ApiVersions (18): lists the APIs and versions that this broker serves, and its features."""

from __future__ import annotations

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i64

from sharegroup.broker.cluster.features import FEATURES
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.wire.apis import APIS, Api

VERSION_WITH_LEVEL_0 = 4
"""The first version whose clients can read a range of levels from 0 (KAFKA-17492).

In older versions the response leaves out features with such a range.
"""


def handle(
    parts: Parts, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """List the APIs and features, without those that this client or this broker cannot use.

    The APIs between brokers are listed only if `share_state_apis` is set (ADR 0010).
    """
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            _entry(api)
            for api in APIS.values()
            if not api.between_brokers or parts.config.server.share_state_apis
        ),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(
                name=feature.name, min_version=i16(feature.oldest), max_version=i16(feature.newest)
            )
            for feature in FEATURES
            if feature.oldest > 0 or context.api_version >= VERSION_WITH_LEVEL_0
        ),
        finalized_features_epoch=i64(parts.features.epoch),
        finalized_features=tuple(
            FinalizedFeatureKey(
                name=name, min_version_level=i16(level), max_version_level=i16(level)
            )
            for name, level in parts.features.finalized.items()
        ),
    )


def refuse(request: ApiVersionsRequest | None, error: KafkaError) -> ApiVersionsResponse:
    """Return an error that lists ApiVersions, so the client can retry in a supported version."""
    return ApiVersionsResponse(
        error_code=error_code(error), api_keys=(_entry(APIS[18]),), throttle_time=NO_THROTTLE
    )


def _entry(api: Api) -> ApiVersion:
    return ApiVersion(
        api_key=i16(api.key), min_version=i16(api.oldest_advertised), max_version=i16(api.newest)
    )
