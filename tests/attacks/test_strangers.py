"""What strangers can do before they are logged in, beside an honest client.

All attackers have the honest client's address, which is the worst case for it.  The probe is logged
in and asks every 100 ms.  Meanwhile the honest client also logs in anew, each time in a second.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attacks.harness import PROBE_SECONDS_MAX, SLACK_MIB, slowness
from tests.attacks.probe import Probe
from tests.attacks.target import MIB
from tests.attacks.test_attacks import RUNS_ALL
from tests.faults.login import SASL_AUTHENTICATE, SASL_HANDSHAKE, Login, frame
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess, peak_rss_bytes, reset_peak_rss, rss_bytes
from tests.support.token_issuer import claims_of, key_of, key_set, signed, unsigned

HONEST = Login("", "alice", "wonderland")
CONNECTIONS = 2_000
AT_ONCE = 500
"""Connections that an attacker holds at a time: the client's process has to open them, too."""
LOGINS_DURING = 5
LOG_LINES_MAX = 100


@dataclass
class Broker:
    process: ServeProcess
    slowness: float

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.process.port), timeout=HANGING_SECONDS)

    def log_in(self) -> float:
        """Log in on a new connection; return the seconds that it took."""
        began = time.monotonic()
        with self.connect() as connection:
            HONEST.enter(connection)
        return time.monotonic() - began


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "keys.json").write_bytes(key_set(key_of("known")))
    jaas = f'PlainLoginModule required user_{HONEST.user}="{HONEST.password}";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.{jaas}"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "sasl.oauthbearer.allow.unverified.audience": "true",
    }
    process = ServeProcess(tmp_path / "data", durability="os", settings=settings)
    began = time.monotonic()
    process.start()
    try:
        yield Broker(process, slowness(time.monotonic() - began))
    finally:
        process.kill9()


def handshake(mechanism: str) -> bytes:
    return frame(SASL_HANDSHAKE, struct.pack(">h", len(mechanism)) + mechanism.encode())


def message(content: bytes) -> bytes:
    return frame(SASL_AUTHENTICATE, struct.pack(">i", len(content)) + content)


def bearer(token: str) -> bytes:
    return handshake("OAUTHBEARER") + message(f"n,,\x01auth=Bearer {token}\x01\x01".encode())


TOKEN_FRAME_BYTES = 524_288

SENT: dict[str, Callable[[int], bytes]] = {
    "silence": lambda _: b"",
    "half a length": lambda _: b"\0\0",
    "half a handshake": lambda _: handshake("PLAIN")[:-1],
    "handshake alone": lambda _: handshake("SCRAM-SHA-512"),
    "giant frame": lambda _: struct.pack(">i", 2**31 - 1) + bytes(100),
    "half a giant token": lambda _: (
        handshake("OAUTHBEARER") + struct.pack(">i", TOKEN_FRAME_BYTES) + bytes(15_000)
    ),
    "other requests": lambda _: frame(3, b"\xff\xff\xff\xff\0\0\0", 9),
    "wrong passwords": lambda _: handshake("PLAIN") + message(b"\0alice\0guess"),
    "names to be guessed": lambda number: (
        handshake("SCRAM-SHA-512") + message(b"n,,n=user%d,r=abcdef" % number)
    ),
    "unsigned tokens": lambda _: bearer(unsigned(claims_of("alice", time.time()), kid="known")),
    "tokens with unknown keys": lambda number: bearer(
        signed(claims_of("alice", time.time()), key_of("unknown"), kid=f"unknown-{number}")
    ),
    "giant tokens": lambda number: (
        bearer(signed({"filling": "x" * 90_000}, key_of("unknown"), kid=f"unknown-{number}"))
        if number % 10 == 0
        else handshake("OAUTHBEARER")
    ),
    "garbage": lambda number: bytes(range(256)) * (number % 20),
}


@contextmanager
def opened(broker: Broker, sent: Callable[[int], bytes]) -> Iterator[None]:
    """Open connections and send something on each; the last ones are held."""
    with ExitStack() as stack:
        held: list[socket.socket] = []
        for number in range(CONNECTIONS):
            connection = broker.connect()
            stack.callback(connection.close)
            try:
                connection.sendall(sent(number))
            except OSError:  # The broker has closed it, which it may.
                continue
            held.append(connection)
            if len(held) > AT_ONCE:
                held.pop(0).close()
            if number % (CONNECTIONS // LOGINS_DURING) == 0:
                check_login(broker)
        yield


def check_login(broker: Broker) -> None:
    seconds = broker.log_in()
    assert seconds < PROBE_SECONDS_MAX * broker.slowness, f"a login took {seconds:.3f} s"


SAMPLES = ("half a handshake", "giant frame", "wrong passwords", "giant tokens")
"""`make attacks` runs all: here is one that hangs, one that lies, one refused, one that costs."""


@pytest.mark.parametrize("name", SENT if RUNS_ALL else SAMPLES)
def test_strangers_do_not_slow_down_an_honest_client(broker: Broker, name: str) -> None:
    check_login(broker)
    idle_mib = rss_bytes(broker.process.pid) // MIB
    reset_peak_rss(broker.process.pid)
    probe = Probe(broker.process.port, HONEST)
    with probe, opened(broker, SENT[name]):
        check_login(broker)
    peak_mib = peak_rss_bytes(broker.process.pid) // MIB
    assert probe.slowest < PROBE_SECONDS_MAX * broker.slowness
    assert peak_mib - idle_mib < SLACK_MIB
    check_login(broker)
    log = broker.process.log_path.read_text()
    assert len(log.splitlines()) < LOG_LINES_MAX
    assert "guess" not in log
    assert "Traceback" not in log
