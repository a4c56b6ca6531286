"""UpdateFeatures (57): the levels that the cluster's features run at, all changed or none."""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from sharegroup.broker.cluster.features import Update, UpgradeType
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.wire.apis import response_module

log = logging.getLogger(__name__)

API_KEY = 57
NATIVE = True
"""The versions differ in what a downgrade is, and in that 2 answers once for all features."""

VERSION_WITH_UPGRADE_TYPES = 1
VERSION_WITHOUT_RESULTS = 2


async def handle(parts: Parts, context: Context, request: Any) -> Any:
    updates = tuple(_update(one, context.api_version) for one in request.feature_updates)
    validate_only = (
        context.api_version >= VERSION_WITH_UPGRADE_TYPES and request.validate_only is True
    )
    if validate_only:
        parts.features.changed(updates)
    else:
        await parts.topics.alter(lambda: parts.features.changed(updates))
        parts.group_settings.all_changed()
        parts.features.happened()
        log.info(
            "event=features epoch=%d levels=%s", parts.features.epoch, parts.features.finalized
        )
    return _response(request, ErrorCode.none, None)


def refuse(request: Any, error: KafkaError) -> Any:
    message = f"no feature was updated: {error}"
    return _response(request, error_code(error), message)


def _update(wanted: Any, version: int) -> Update:
    """Before version 1 there was one kind of downgrade, now the safe one."""
    if version >= VERSION_WITH_UPGRADE_TYPES:
        upgrade_type = int(wanted.upgrade_type)
    else:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    return Update(wanted.feature, int(wanted.max_version_level), upgrade_type)


def _response(request: Any, code: ErrorCode, message: str | None) -> Any:
    """In the request's version; an error that stands above all leaves out the features."""
    version = int(type(request).__version__)
    module = response_module(API_KEY, version)
    fields: dict[str, Any] = {}
    if version < VERSION_WITHOUT_RESULTS:
        fields["results"] = tuple(
            module.UpdatableFeatureResult(
                feature=one.feature, error_code=ErrorCode.none, error_message=None
            )
            for one in (request.feature_updates if code == ErrorCode.none else ())
        )
    return module.UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message, **fields
    )
