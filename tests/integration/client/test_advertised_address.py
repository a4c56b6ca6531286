"""A bootstrap server that answers, and advertises an address that clients cannot reach."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sharegroup.cli.access.local_certificates import make_certificates
from sharegroup.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from sharegroup.errors import NetworkException, RequestTimedOut, TlsHandshakeFailed
from sharegroup.testing import broker
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS

UNKNOWN_HOST = "no-such-host.invalid:9092"
CLOSED_PORT = "127.0.0.1:1"


@asynccontextmanager
async def advertising(address: str, **settings: Any) -> AsyncIterator[str]:
    """Run a broker with the topic ``orders`` that advertises this address; yield its own."""
    [port] = free_ports(1)
    here = f"127.0.0.1:{port}"
    listeners = {
        "listeners": f"PLAINTEXT://{here}",
        "advertised.listeners": f"PLAINTEXT://{address}",
    }
    async with broker(listeners | settings):
        async with AdminClient(bootstrap_servers=here) as admin:
            topics = [NewTopic("orders", 1)]
            created = await admin.create_topics(topics, timeout=HANGING_SECONDS)
            assert created == {"orders": None}
        yield here


def says_whence(error: object, *, address: str, bootstrap: str) -> bool:
    """Whether an error names the address, the node, where it comes from and what to do."""
    expected = (
        f"broker {re.escape(address)}: .*node 1 advertises this address, as the metadata of the "
        rf"bootstrap servers \({bootstrap}\) says.*set its advertised.listeners"
    )
    return re.search(expected, str(error)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("address", [UNKNOWN_HOST, CLOSED_PORT])
def test_every_client_says_that_the_broker_advertises_the_address(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with advertising(address) as here:
            async with Consumer(bootstrap_servers=here, default_api_timeout_ms=3_000) as consumer:
                with pytest.raises(RequestTimedOut) as failed:
                    await consumer.end_offsets([TopicPartition("orders", 0)])
            assert says_whence(failed.value, address=address, bootstrap=here)
            assert failed.value.is_of_advertised
            warnings = [text for text in caplog.messages if text.startswith("event=node.unreach")]
            assert len(warnings) == 1
            assert says_whence(warnings[0], address=address, bootstrap=here)
            async with AdminClient(bootstrap_servers=here) as admin:
                answers = await admin.describe_consumer_groups(["g"], timeout=3)
            assert isinstance(answers["g"], RequestTimedOut)
            assert says_whence(answers["g"], address=address, bootstrap=here)
            producer = Producer(bootstrap_servers=here)
            sent = await producer.send("orders", b"one")
            while not [text for text in caplog.messages if "event=node.unreach" in text][2:]:
                await asyncio.sleep(0.01)
            await producer.close(timeout=0.2)
            with pytest.raises(NetworkException, match="the producer was closed") as closed:
                await sent
            assert says_whence(closed.value, address=address, bootstrap=here)

    asyncio.run(asyncio.wait_for(run(), HANGING_SECONDS))


def test_a_certificate_without_the_advertised_name_is_explained(tmp_path: Path) -> None:
    make_certificates(tmp_path, hosts=("localhost",), clients=())

    async def run() -> None:
        [port] = free_ports(1)
        settings = {
            "listeners": f"SSL://127.0.0.1:{port}",
            "advertised.listeners": f"SSL://127.0.0.1:{port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "server.pem"),
        }
        bootstrap = f"localhost:{port}"
        options: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(tmp_path / "ca.pem"),
        }
        async with broker(settings), AdminClient(**options) as admin:
            answers = await admin.describe_consumer_groups(["g"], timeout=HANGING_SECONDS)
        assert isinstance(answers["g"], TlsHandshakeFailed)
        assert "certificate is not valid for '127.0.0.1'" in str(answers["g"])
        assert says_whence(answers["g"], address=f"127.0.0.1:{port}", bootstrap=bootstrap)

    asyncio.run(asyncio.wait_for(run(), HANGING_SECONDS))
