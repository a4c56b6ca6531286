"""AlterClientQuotas (49): sets and removes limits of users, client ids and addresses.

Each entity of a request is changed on its own: an error does not affect the others.
"""

from __future__ import annotations

import logging
from collections import Counter

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntryData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.response import EntityData as AlteredEntity
from kio.schema.alter_client_quotas.v1.response import EntryData as AlteredEntry
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.quotas.entities import Entity, Event, parse_entity, quota_event
from sharegroup.errors import InvalidRequest, KafkaError

log = logging.getLogger(__name__)


def handle(
    parts: Parts, context: RequestContext, request: AlterClientQuotasRequest
) -> Later[AlterClientQuotasResponse]:
    return Later(_alter_all(parts, request))


async def _alter_all(parts: Parts, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    counts = Counter(_names(entry) for entry in request.entries)
    altered = []
    for entry in request.entries:
        await parts.slices.turn()
        try:
            if counts[_names(entry)] > 1:
                raise InvalidRequest(f"quota entity {_names(entry)} occurs twice in one request")
            await _alter(parts, entry, validate_only=request.validate_only)
            altered.append(_altered(entry, None))
        except KafkaError as error:
            altered.append(_altered(entry, error))
    return AlterClientQuotasResponse(throttle_time=NO_THROTTLE, entries=tuple(altered))


def refuse(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(_altered(entry, error) for entry in request.entries),
    )


async def _alter(parts: Parts, entry: EntryData, *, validate_only: bool) -> None:
    entity = parse_entity((named.entity_type, named.entity_name) for named in entry.entity)
    event = _event(parts, entity, entry)
    if event is None or validate_only:
        return

    def current() -> Event:
        """Return the event of the change, which earlier requests may have changed meanwhile."""
        quotas = parts.topics.catalog.client_quotas
        return _event(parts, entity, entry) or quota_event(entity, quotas.limits(entity))

    await parts.topics.alter(current)
    parts.quotas.changed()
    limits = parts.topics.catalog.client_quotas.limits(entity)
    text = ",".join(f"{key}={value:g}" for key, value in limits.items())
    log.info('event=client_quotas entity="%s" limits=%s', entity, text or "none")


def _event(parts: Parts, entity: Entity, entry: EntryData) -> Event | None:
    return parts.topics.catalog.client_quotas.check(
        entity,
        [(op.key, None if op.remove else float(op.value)) for op in entry.ops],
        entities_max=parts.config.started.quotas.entities_max,
    )


def _names(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((named.entity_type, named.entity_name) for named in entry.entity)


def _altered(entry: EntryData, error: KafkaError | None) -> AlteredEntry:
    return AlteredEntry(
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        entity=tuple(
            AlteredEntity(entity_type=named.entity_type, entity_name=named.entity_name)
            for named in entry.entity
        ),
    )
