"""The schedulers' consumer logs in as our own clients do: TLS and each SASL mechanism."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.worker.transport.tier_log_kafka import connection_options
from tests.integration.worker.conftest import SETTINGS
from tests.integration.worker.scheduling import WallClock, make_tiers, postponing, scheduling
from tests.interop.secure_listeners import (
    KEY_PASSWORD,
    PASSWORD,
    USER,
    Certificates,
    SecureKafka,
    unsecured_token,
    why_no_certificates,
)
from tests.support import confluent_calls
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import why_missing
from tests.support.limits import HANGING_SECONDS

missing = why_missing() or why_no_certificates()
SCRAM = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


async def token() -> str:
    return unsecured_token()


@LONG_WITH_A_JVM
@pytest.mark.kafka
@pytest.mark.skipif(missing is not None, reason=missing or "")
def test_scheduler_logs_in_by_each_mechanism_and_by_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    authority = {"ssl_cafile": str(certificates.authority)}
    certificate = {
        "ssl_certfile": str(certificates.client),
        "ssl_keyfile": str(certificates.client_key),
        "ssl_password": KEY_PASSWORD,
    }
    kafka = SecureKafka(tmp_path / "kafka", certificates)
    kafka.properties |= SETTINGS
    with kafka:
        admin = confluent_calls.admin(kafka.bootstrap_servers)
        upsertion = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin.alter_user_scram_credentials([upsertion])[USER].result(HANGING_SECONDS)
        confluent_calls.admin.cache_clear()
        tls, sasl = kafka.at(kafka.tls_port), kafka.at(kafka.sasl_tls_port)
        ways: dict[str, tuple[str, dict[str, Any]]] = {
            "tls": (tls, {"security_protocol": "SSL", **authority, **certificate}),
            "plain": (sasl, {"sasl_mechanism": "PLAIN", **SCRAM}),
            "scram": (sasl, {"sasl_mechanism": "SCRAM-SHA-512", **SCRAM}),
            "oauth": (
                sasl,
                {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": unsecured_token},
            ),
            "oauth-async": (
                sasl,
                {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": token},
            ),
        }

        async def move(group: str) -> None:
            bootstrap, more = ways[group]
            options = {"security_protocol": "SASL_SSL", **authority, **more}
            await make_tiers(bootstrap, group, delays=(0.2,), **options)
            async with scheduling(bootstrap, group, (0.2,), **options) as scheduler:
                async with postponing(bootstrap, group, (0.2,), **options) as postponer:
                    due_ms = WallClock().wall_ms() + 300
                    await postponer.send_later("orders", b"a", due_ms=due_ms)
                for _ in range(2_000):
                    # A slow machine moves it on after it was due, and then to no second tier.
                    if any(state.committed.offset for state in scheduler.snapshot()):
                        return
                    await asyncio.sleep(0.02)
                raise AssertionError(f"{group}: {scheduler.snapshot()}")

        async def run() -> None:
            await asyncio.gather(*map(move, ways))

        asyncio.run(run())


def test_tiers_use_the_options_of_the_clients_with_shorter_times() -> None:
    config = ClientConfig(
        bootstrap_servers="a:1,b:2",
        client_id="orders-service",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        retry_backoff_ms=50,
        **SCRAM,
    )
    options = connection_options(config)
    tiers = ClientConfig(**options)
    assert (
        replace(
            tiers,
            request_timeout_ms=config.request_timeout_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
        )
        == config
    )
    assert (tiers.request_timeout_ms, tiers.metadata_max_age_ms) == (15_000, 10_000)
