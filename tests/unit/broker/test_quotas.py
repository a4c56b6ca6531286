"""What the quotas of a broker keep of clients that choose long or many client ids."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import pytest

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.quotas import THROTTLE_MS_MAX, Quotas
from sharegroup.broker.configuration.quota_config import QuotaConfig
from sharegroup.core.quotas.entities import ClientQuotas, Entity, entity
from sharegroup.core.security.principal import Principal
from sharegroup.testing import ManualClock

CLIENTS = 500
CLIENT_ID_CHARACTERS = 32_000
KEPT_BYTES_MAX = 2 * 1024 * 1024
LARGE = 1_000_000


class Client(NamedTuple):
    """The sender of a request."""

    peer: Peer
    client_id: str
    limited_user: Principal | None = None


def client(client_id: str) -> Client:
    return Client(Peer("10.0.0.1", principal=Principal("User", "alice")), client_id)


def quotas(altered: Entity, **limits: float) -> Quotas:
    """Quotas with limits for one entity."""
    entities = ClientQuotas()
    event = entities.check(altered, limits.items(), entities_max=10)
    assert event is not None
    entities.replay(event)
    return Quotas(entities, QuotaConfig(), ManualClock())


@pytest.mark.parametrize("altered", [entity(user="alice"), entity(user=None, client_id=None)])
def test_long_client_ids_are_not_kept(altered: Entity) -> None:
    own = quotas(altered, producer_byte_rate=1_000, consumer_byte_rate=1_000)
    tracemalloc.start()
    try:
        for number in range(CLIENTS):
            sender = client(f"{number:0{CLIENT_ID_CHARACTERS}}")
            own.produced(sender, 1)
            own.fetch_throttle_ms(sender)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < KEPT_BYTES_MAX


def test_long_client_id_has_a_limit_for_itself() -> None:
    own = quotas(entity(client_id=None), producer_byte_rate=1_000)
    first, second = (client(letter * CLIENT_ID_CHARACTERS) for letter in "ab")
    assert own.produced(first, LARGE) > 0
    assert own.produced(first, 1) > 0, "its use is remembered"
    assert own.produced(second, 1) == 0


@pytest.mark.parametrize("limit", [5e-324, 1e-300])
def test_limit_near_zero_throttles_for_the_longest_time(limit: float) -> None:
    own = quotas(entity(user="alice"), request_percentage=limit, controller_mutation_rate=limit)
    sender = client("etl")
    own.worked(sender, 1.0)
    assert own.request_throttle_ms(sender) == 1_000, "one window"
    own.mutate(sender, 1, is_strict=True)
    assert own.mutate(sender, 1, is_strict=True) == THROTTLE_MS_MAX
