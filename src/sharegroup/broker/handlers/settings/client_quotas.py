"""Requests about client quotas (48, 49): describe and change them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntryData
from kio.schema.alter_client_quotas.v1.response import (
    AlterClientQuotasResponse,
    EntityData as AlteredEntity,
    EntryData as AlteredEntry,
)
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData as DescribedEntry,
    ValueData,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from sharegroup.broker.access import checks as required
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasConfig, HasQuotas, HasSlices, HasTopics
from sharegroup.core.quotas.entities import (
    Entity,
    Event,
    QuotaKey,
    is_match,
    parse_entity,
    parse_filter,
    quota_event,
)
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.steps import Steps, paced


class ClientQuotasParts(HasConfig, HasQuotas, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


def describe_client_quotas(
    parts: ClientQuotasParts, context: RequestContext, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """DescribeClientQuotas (48): lists the limits of the matching users, clients, addresses."""
    quotas = parts.topics.catalog.client_quotas
    quota_filter = parse_filter(
        (component.entity_type, int(component.match_type), component.match)
        for component in request.components
    )
    entries = []
    for entity, pause in paced(quotas.entities()):
        if is_match(entity, quota_filter, strict=request.strict):
            entries.append(_entry(entity, dict(quotas.limits(entity))))
        if pause:
            yield
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(entries),
    )


def _entry(entity: Entity, limits: Mapping[QuotaKey, float]) -> DescribedEntry:
    return DescribedEntry(
        entity=tuple(
            EntityData(entity_type=part.value, entity_name=name) for part, name in entity.parts
        ),
        values=tuple(ValueData(key=str(key), value=f64(value)) for key, value in limits.items()),
    )


log = logging.getLogger(__name__)


def alter_client_quotas(
    parts: ClientQuotasParts, context: RequestContext, request: AlterClientQuotasRequest
) -> Later[AlterClientQuotasResponse]:
    """AlterClientQuotas (49): sets and removes limits of users, client ids and addresses.

    Each entity of a request is changed on its own: an error does not affect the others.
    """
    return Later(_alter_all(parts, request))


async def _alter_all(
    parts: ClientQuotasParts, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
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


def refuse_alter_client_quotas(
    request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(_altered(entry, error) for entry in request.entries),
    )


async def _alter(parts: ClientQuotasParts, entry: EntryData, *, validate_only: bool) -> None:
    entity = parse_entity((named.entity_type, named.entity_name) for named in entry.entity)
    event = _event(parts, entity, entry)
    if event is None or validate_only:
        return

    def current() -> Event:
        """Return the event of the change, which earlier requests may have changed meanwhile."""
        quotas = parts.topics.catalog.client_quotas
        return _event(parts, entity, entry) or quota_event(entity, quotas.limits(entity))

    # Decided twice: the first check has answered wrong requests, also with `validate_only`, without
    # a wait for other changes; `current` sees what these have changed.
    await parts.topics.alter(current)
    parts.quotas.changed()
    limits = parts.topics.catalog.client_quotas.limits(entity)
    text = ",".join(f"{key}={value:g}" for key, value in limits.items())
    log.info('event=client_quotas entity="%s" limits=%s', entity, text or "none")


def _event(parts: ClientQuotasParts, entity: Entity, entry: EntryData) -> Event | None:
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


SERVED = {
    48: ApiHandler(
        describe_client_quotas,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CONFIGS_OF_CLUSTER,),
        refused={"entries": None},
    ),
    49: ApiHandler(
        alter_client_quotas,
        refuse_alter_client_quotas,
        gates=(required.ALTER_CLIENT_QUOTAS,),
    ),
}
