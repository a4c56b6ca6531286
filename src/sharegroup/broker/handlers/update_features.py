"""UpdateFeatures (57): changes the finalized levels of features, either all or none.

It is native: versions differ in the kinds of downgrades, and version 2 has one result for all
features.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from sharegroup.broker.cluster.features import Update
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import UpgradeType
from sharegroup.wire.apis import response_module

if TYPE_CHECKING:
    # At run time only the versions that clients use are imported.
    from sharegroup.broker.message_versions import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

log = logging.getLogger(__name__)

API_KEY = 57

VERSION_WITHOUT_RESULTS = 2


def handle(
    parts: Parts, context: RequestContext, request: UpdateFeaturesRequest
) -> Later[UpdateFeaturesResponse]:
    return Later(_update_all(parts, request))


async def _update_all(parts: Parts, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
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


def refuse(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    message = f"no feature was updated: {error}"
    return _response(request, error_code(error), message)


def _update(wanted: FeatureUpdateKey) -> Update:
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
