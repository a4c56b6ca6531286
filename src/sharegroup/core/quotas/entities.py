"""Client quotas: which limits are set for which users, client ids and addresses.

A quota entity is a user, a client id, a user with a client id, or an address.  Each part of it is a
name or the default, which applies to all names without a limit of their own.  A limit is a number
for one quota key (`USER_KEYS`, `ADDRESS_KEYS`).

`ClientQuotas` follows the pattern of the catalog: `check` validates changes and alters nothing,
`replay` alone changes the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from sharegroup.core.security.principal import canonical_address
from sharegroup.errors import InvalidRequest, PolicyViolation, UnsupportedVersion

Event: TypeAlias = dict[str, Any]

EVENT_KIND = "client_quotas"


class Part(StrEnum):
    """The kinds of names that an entity consists of, as the protocol spells them."""

    USER = "user"
    CLIENT_ID = "client-id"
    ADDRESS = "ip"


class QuotaKey(StrEnum):
    """The limits, as the protocol and Kafka's tools spell them."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


WHOLE_MAX: Mapping[QuotaKey, int] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: 2**63 - 1,
        QuotaKey.CONSUMER_BYTE_RATE: 2**63 - 1,
        QuotaKey.CONNECTION_CREATION_RATE: 2**31 - 1,
    }
)
"""The largest value of each key whose values are whole numbers; the others have no maximum."""

FRACTION_MAX = 1e-6
"""A whole number may differ by so much from an integer, as in Kafka."""

ADDRESS_KEYS = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
USER_KEYS = frozenset(QuotaKey) - ADDRESS_KEYS

DEFAULT = None
"""The name of the default entity in the protocol."""

NAME_BYTES_MAX = 32_767
"""The maximum length of a name in bytes.  The protocol permits more in its newer versions only."""

ENTITY_BYTES = 450
LIMIT_BYTES = 120
"""The approximate memory of an entity and of one of its limits, in bytes, without the names."""


class Entity(NamedTuple):
    """A quota entity: the parts that it has, and their names (None: the default)."""

    parts: tuple[tuple[Part, str | None], ...]
    """Sorted by part, and at least one."""

    def has(self, part: Part) -> bool:
        return any(own == part for own, _ in self.parts)

    def name(self, part: Part) -> str | None:
        """Return the name of a part that the entity has."""
        return next(name for own, name in self.parts if own == part)

    def __str__(self) -> str:
        return ", ".join(
            f"{part} {'<default>' if n is None else repr(n)}" for part, n in self.parts
        )


def entity(
    *,
    user: str | None = "",
    client_id: str | None = "",
    address: str | None = "",
) -> Entity:
    """Return an entity; an empty name means that it has no such part, None is the default."""
    named = ((Part.CLIENT_ID, client_id), (Part.ADDRESS, address), (Part.USER, user))
    return Entity(tuple((part, name) for part, name in named if name != ""))


class Limit(NamedTuple):
    """The limit that applies to a client, and whose use counts against it."""

    value: float
    user: str
    """The user whose clients share the limit; empty if all users share it."""
    client_id: str
    """The client id that has the limit for itself; empty if all client ids share it."""


class ClientQuotas:
    """The limits of all entities, changed only by `replay`."""

    kinds = frozenset({EVENT_KIND})
    """The kinds of events that this part of the catalog has."""

    __slots__ = ("_by_address", "_limits", "_names_bytes", "in_use", "limit_count")

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[QuotaKey, float]] = {}
        self._by_address: dict[str, Entity] = {}
        self._names_bytes = 0
        self.in_use: frozenset[QuotaKey] = frozenset()
        """The keys that at least one entity has a limit for."""
        self.limit_count = 0

    def __len__(self) -> int:
        """Return the number of entities, which is that of `events`."""
        return len(self._limits)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of all limits in bytes."""
        return self._names_bytes + ENTITY_BYTES * len(self._limits) + LIMIT_BYTES * self.limit_count

    def limits(self, of: Entity) -> Mapping[QuotaKey, float]:
        """Return the limits of exactly this entity."""
        return self._limits.get(of, {})

    def entities(self) -> list[Entity]:
        """Return all entities that have limits."""
        return list(self._limits)

    def check(
        self,
        altered: Entity,
        changes: Iterable[tuple[str, float | None]],
        *,
        entities_max: int,
    ) -> Event | None:
        """Return the event of a change, or None if nothing changes.

        A value of None removes a limit.  Raises InvalidRequest if the change is not valid, and
        PolicyViolation if there are too many entities.
        """
        keys = check_entity(altered)
        values: dict[str, float | None] = {}
        for name, value in changes:
            if name in values:
                raise InvalidRequest(f"quota entity {altered}: key {name!r} occurs twice")
            values[name] = value
        set_limits = {
            check_value(altered, check_key(altered, name, keys), value): value
            for name, value in values.items()
            if value is not None
        }
        before = self.limits(altered)
        after = {key: value for key, value in before.items() if key not in values} | set_limits
        if after == before:
            return None
        # An entity that has limits already may always change them.
        if not before and len(self._limits) >= entities_max:
            raise PolicyViolation(
                f"quota entity {altered}: {len(self._limits)} entities have quotas, and "
                f"sharegroup.client.quota.entities.max is {entities_max}; remove quotas that "
                "are not needed, or raise the limit"
            )
        return quota_event(altered, after)

    def replay(self, event: Event) -> None:
        """Apply an event."""
        altered, limits = _parsed(event)
        before = self._limits.pop(altered, {})
        names_bytes = sum(len(name or "") for _, name in altered.parts)
        address = _address_of(altered)
        if before:
            self._names_bytes -= names_bytes
            if address is not None:
                self._by_address.pop(address, None)
        if limits:
            self._limits[altered] = limits
            self._names_bytes += names_bytes
            if address is not None:
                self._by_address[address] = altered
        self.limit_count += len(limits) - len(before)
        self.in_use = frozenset(key for own in self._limits.values() for key in own)

    def events(self) -> Iterator[Event]:
        """Yield the events that lead to these limits."""
        for altered, limits in self._limits.items():
            yield quota_event(altered, limits)

    def limit_of(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none.

        The most specific entity with a limit for the key applies.  With the default client id
        each client id has a limit of its own, with the default user each user.
        """
        client_names = (client_id, DEFAULT) if client_id else (DEFAULT,)
        # Kafka's order of precedence (KIP-55): the user decides before the client id does.
        for user_name in (user, DEFAULT, ""):
            # An entity has at least one part, so there is none without user and client id.
            for client_name in (*client_names, "") if user_name != "" else client_names:
                limits = self._limits.get(entity(user=user_name, client_id=client_name), {})
                if (value := limits.get(key)) is not None:
                    return Limit(
                        value,
                        "" if user_name == "" else user,
                        "" if client_name == "" else client_id,
                    )
        return None

    def address_limit(self, address: str) -> float | None:
        """Return the connections per second that an address may open; None without a limit.

        The address may have any of its spellings.
        """
        key = QuotaKey.CONNECTION_CREATION_RATE
        own = self._by_address.get(canonical_address(address) or address)
        if own is not None:
            return self._limits[own][key]
        return self.limits(entity(address=DEFAULT)).get(key)


def _address_of(altered: Entity) -> str | None:
    """Return the address of an entity in its shortest spelling; None if it has no address."""
    for part, name in altered.parts:
        if part is Part.ADDRESS and name is not None:
            return canonical_address(name) or name
    return None


def check_entity(altered: Entity) -> frozenset[QuotaKey]:
    """Return the keys that an entity may have; raise InvalidRequest if it is not valid."""
    for part, name in altered.parts:
        if name == "":
            raise InvalidRequest(f"quota entity: the {part} has an empty name")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(
                f"quota entity: the {part} has {len(name.encode())} bytes, more than "
                f"{NAME_BYTES_MAX}"
            )
    if not altered.parts:
        raise InvalidRequest("quota entity: it has no user, client id or ip")
    if not altered.has(Part.ADDRESS):
        return USER_KEYS
    if len(altered.parts) > 1:
        raise InvalidRequest(f"quota entity {altered}: an ip cannot have a user or a client id")
    address = altered.name(Part.ADDRESS)
    if address is not None and canonical_address(address) is None:
        raise InvalidRequest(
            f"quota entity: {address!r} is not an IP address; host names are not looked up"
        )
    return ADDRESS_KEYS


def parse_entity(named: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of a request; raise InvalidRequest for an unknown part."""
    parts: dict[Part, str | None] = {}
    for kind, name in named:
        part = _part(kind)
        if part is None:
            raise InvalidRequest(
                f"quota entity: type {kind!r} is not known; known are user, client-id and ip"
            )
        # As in Kafka, of a part that is named twice the last name counts.
        parts[part] = name
    return Entity(tuple(sorted(parts.items())))


def check_key(altered: Entity, name: str, keys: frozenset[QuotaKey]) -> QuotaKey:
    """Return the key with this name; raise InvalidRequest unless it is one of ``keys``."""
    key = _key_or_none(name)
    if key is None or key not in keys:
        names = ", ".join(sorted(keys))
        raise InvalidRequest(f"quota entity {altered}: it has no key {name!r}; known are {names}")
    return key


def check_value(altered: Entity, key: QuotaKey, value: float) -> QuotaKey:
    """Return the key; raise InvalidRequest if it cannot have this value."""
    if not value > 0.0 or math.isnan(value):
        raise InvalidRequest(f"quota entity {altered}: {key} must be greater than 0, not {value}")
    whole_max = WHOLE_MAX.get(key)
    if whole_max is None:
        return key
    if value > whole_max:
        raise InvalidRequest(
            f"quota entity {altered}: {key} may be at most {whole_max}, not {value}"
        )
    if value % 1.0 > FRACTION_MAX:
        raise InvalidRequest(f"quota entity {altered}: {key} must be a whole number, not {value}")
    return key


class Match(NamedTuple):
    """One component of a filter for entities."""

    part: Part
    is_any: bool
    """Whether every name matches, the default included."""
    name: str | None = None
    """The name that matches; None is the default.  Without a meaning if `is_any`."""


EXACT, DEFAULT_NAME, ANY = range(3)
"""The codes of the kinds of matches in the protocol."""


def parse_filter(components: Iterable[tuple[str, int, str | None]]) -> tuple[Match, ...]:
    """Return the filter of a request; its components are (type, kind of match, name).

    Raises InvalidRequest or UnsupportedVersion, as Kafka does.
    """
    matches: dict[Part, Match] = {}
    for kind, code, name in components:
        if not kind:
            raise InvalidRequest("quota filter: a component has an empty entity type")
        part = _part(kind)
        if part in matches:
            raise InvalidRequest(f"quota filter: entity type {kind!r} occurs twice")
        if part is None:
            raise UnsupportedVersion(
                f"quota filter: entity type {kind!r} is not known; known are user, client-id and ip"
            )
        if code not in (EXACT, DEFAULT_NAME, ANY):
            raise InvalidRequest(
                f"quota filter: {kind} has match type {code}; known are 0 (exact), 1 (default) and "
                "2 (any)"
            )
        if (code == EXACT) is (name is None):
            name_text = "a name" if code == EXACT else "no name"
            raise InvalidRequest(f"quota filter: {kind} with match type {code} needs {name_text}")
        matches[part] = Match(part, code == ANY, name)
    if Part.ADDRESS in matches and len(matches) > 1:
        raise InvalidRequest("quota filter: an ip cannot be combined with a user or a client id")
    return tuple(matches.values())


def is_match(found: Entity, wanted: tuple[Match, ...], *, strict: bool) -> bool:
    """Return whether an entity matches a filter.

    A filter that is ``strict`` matches only entities without further parts.
    """
    names = dict(found.parts)
    return (not strict or len(names) == len(wanted)) and all(
        match.part in names and (match.is_any or names[match.part] == match.name)
        for match in wanted
    )


def quota_event(altered: Entity, limits: Mapping[QuotaKey, float]) -> Event:
    """Return the event that gives an entity these limits and no others."""
    return {
        "event": EVENT_KIND,
        "entity": {part.value: name for part, name in altered.parts},
        "limits": {key.value: value for key, value in limits.items()},
    }


def _parsed(event: Event) -> tuple[Entity, dict[QuotaKey, float]]:
    altered = Entity(tuple(sorted((Part(kind), name) for kind, name in event["entity"].items())))
    return altered, {QuotaKey(key): float(value) for key, value in event["limits"].items()}


def _part(kind: str) -> Part | None:
    return Part(kind) if kind in Part._value2member_map_ else None


def _key_or_none(name: str) -> QuotaKey | None:
    return QuotaKey(name) if name in QuotaKey._value2member_map_ else None
