"""ApiVersions (18): which APIs this broker serves, in which versions."""

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

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.wire.apis import APIS, Api

SHARE_VERSION_LEVEL = 1
"""The level of Kafka's feature ``share.version``: 1 is share groups without dead letters."""


def handle(parts: Parts, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    level = i16(SHARE_VERSION_LEVEL)
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(_entry(api) for api in APIS.values()),
        throttle_time=NO_THROTTLE,
        supported_features=(
            SupportedFeatureKey(name="share.version", min_version=i16(0), max_version=level),
        ),
        finalized_features_epoch=i64(0),
        finalized_features=(
            FinalizedFeatureKey(
                name="share.version", min_version_level=level, max_version_level=level
            ),
        ),
    )


def refuse(request: ApiVersionsRequest | None, error: KafkaError) -> ApiVersionsResponse:
    """Lists ApiVersions itself, so that the client can ask again in a version we speak."""
    return ApiVersionsResponse(
        error_code=error_code(error), api_keys=(_entry(APIS[18]),), throttle_time=NO_THROTTLE
    )


def _entry(api: Api) -> ApiVersion:
    return ApiVersion(
        api_key=i16(api.key), min_version=i16(api.oldest_advertised), max_version=i16(api.newest)
    )
