"""Logins that a broker limits in time (KIP-368): again on the same connection, before they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from sharegroup.client import Producer, TopicPartition
from sharegroup.client.fetch.offsets import list_offsets
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.connection import open_connection
from sharegroup.client.net.sasl import OAuthBearer
from sharegroup.client.produce.producer import ProducerConfig
from sharegroup.client.settings.client_config import ClientConfig, config_from
from sharegroup.errors import NetworkException, SaslAuthenticationFailed
from tests.faults.lying_broker import (
    API_VERSIONS,
    LIST_OFFSETS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    LyingBroker,
    Request,
    honest_but,
)
from tests.support.limits import HANGING_SECONDS

SECONDS_MAX = HANGING_SECONDS
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "billing",
    "sasl_plain_password": "pencil",
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 10,
}
WHERE = TopicPartition("t", 0)


def lasts_20_ms(_: Request, honest: Any) -> Any:
    return honest_but(honest, session_lifetime=timedelta(milliseconds=20))


def cluster_of(broker: LyingBroker, config_class: type[ClientConfig], **options: Any) -> Cluster:
    """A cluster whose connections take logins of milliseconds at their word."""
    given = {**LOGIN, "bootstrap_servers": broker.bootstrap_servers, **options}
    connect = partial(open_connection, login_seconds_min=0.001)
    return Cluster(config_from(config_class, given), connect=connect)


def test_no_request_is_sent_between_the_messages_of_a_reauthentication() -> None:
    """Fifty concurrent requests continue meanwhile; a broker accepts none during a login."""

    async def run() -> list[int]:
        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies[SASL_AUTHENTICATE] = lasts_20_ms
            broker.trickle[SASL_AUTHENTICATE] = 0.0005  # A login takes a while.
            with closing(cluster_of(broker, ClientConfig)) as cluster:
                while broker.seen[SASL_HANDSHAKE] < 4:
                    asked = [list_offsets(cluster, {WHERE: 0}) for _ in range(50)]
                    for result in await asyncio.gather(*asked):
                        assert result[WHERE].offset == 12  # type: ignore[union-attr]
                assert broker.seen[API_VERSIONS] == 1
                totals = cluster.metrics.read()["admin-client-metrics"]
                assert totals["successful-reauthentication-total"] >= 2
            return broker.order

    order = asyncio.run(run())
    logins = [at for at, key in enumerate(order[:-1]) if key == SASL_HANDSHAKE]
    assert len(logins) >= 3
    assert {order[at + 1] for at in logins} == {SASL_AUTHENTICATE}


async def ask_for_ever(cluster: Cluster) -> None:
    while True:
        await list_offsets(cluster, {WHERE: 0})


def test_refused_reauthentication_closes_the_connection_and_is_raised() -> None:
    async def run() -> None:
        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies[SASL_AUTHENTICATE] = lasts_20_ms
            with closing(cluster_of(broker, ClientConfig)) as cluster:
                await list_offsets(cluster, {WHERE: 0})
                broker.lies[SASL_AUTHENTICATE] = lambda _, honest: honest_but(
                    honest, error_code=58, error_message="the user is gone"
                )
                with pytest.raises(SaslAuthenticationFailed, match="SASL PLAIN: the user is gone"):
                    await ask_for_ever(cluster)

    asyncio.run(run())


@pytest.mark.slow
def test_records_that_need_no_answer_wait_for_a_login_to_end() -> None:
    """With acks=0 nothing else would limit what piles up during a login without an end."""

    async def run() -> None:
        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies[SASL_AUTHENTICATE] = lasts_20_ms
            broker.lies[PRODUCE] = lambda *_: None  # As acks=0 has it.
            options = {**LOGIN, "acks": 0, "idempotent": False, "linger_ms": 0}
            cluster = cluster_of(broker, ProducerConfig, **options)
            options["bootstrap_servers"] = broker.bootstrap_servers
            async with Producer(cluster=cluster, **options) as producer:
                await producer.send("t", b"v")
                await producer.flush()
                broker.lies[SASL_AUTHENTICATE] = lambda *_: None
                while broker.order[-1] != SASL_AUTHENTICATE or broker.seen[SASL_HANDSHAKE] < 4:
                    await asyncio.sleep(0.001)  # Both connections are in a login now.
                before = broker.seen[PRODUCE]
                futures = [await producer.send("t", b"v") for _ in range(100)]
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not any(future.done() for future in futures)
                assert broker.seen[PRODUCE] == before
                assert broker.seen[LIST_OFFSETS] == 0
                await producer.close(timeout=0)

    asyncio.run(run())


class Unprintable(str):
    """A token of the application that fails when it is put into the message."""

    def __format__(self, _: str) -> str:
        raise LookupError("no such token")


async def cancelled() -> str:
    raise asyncio.CancelledError  # As when the provider awaits a future that was cancelled.


async def odd() -> str:
    return Unprintable("token")


async def raising() -> str:
    raise LookupError("no such token")


@pytest.mark.parametrize("provide", [cancelled, odd, raising])
def test_login_that_fails_in_any_way_holds_no_request_back(
    provide: Callable[[], Awaitable[str]],
) -> None:
    """The next connection logs in with the next token, and the client works again."""

    async def run() -> None:
        calls = 0

        async def tokens() -> str:
            nonlocal calls
            calls += 1
            return await provide() if calls == 2 else "token"

        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies[SASL_AUTHENTICATE] = lasts_20_ms
            options: dict[str, Any] = {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_plain_username": None,
                "sasl_plain_password": None,
                "sasl_oauth_token_provider": tokens,
                "request_timeout_ms": 600_000,
                "default_api_timeout_ms": 600_000,
            }
            with closing(cluster_of(broker, ClientConfig, **options)) as cluster:
                while calls < 3:
                    with suppress(NetworkException):
                        await list_offsets(cluster, {WHERE: 0})
                assert (await list_offsets(cluster, {WHERE: 0}))[WHERE].offset == 12  # type: ignore[union-attr]

    asyncio.run(run())


def test_provider_that_is_cancelled_does_not_cancel_the_client() -> None:
    async def run() -> None:
        with pytest.raises(SaslAuthenticationFailed, match="token_provider was cancelled"):
            await OAuthBearer(cancelled).first()

        async def endless() -> str:
            await asyncio.Event().wait()
            return ""

        first = asyncio.create_task(OAuthBearer(endless).first())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()

    asyncio.run(run())
