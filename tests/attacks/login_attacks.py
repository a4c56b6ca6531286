"""Attacks by peers that have no user: floods of handshakes, tokens, guesses and idle connections.

They run on a broker whose only listener has TLS and SASL.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.attacks.attack import Attack
from tests.attacks.honest import round_trip
from tests.attacks.target import Target, pause_until
from tests.faults.login import SASL_AUTHENTICATE, SASL_HANDSHAKE, Login, call, frame
from tests.support.key_updates import client_secret, key_updates

HALF_HANDSHAKES = 1_500
WHOLE_HANDSHAKES = 600
IDLE_PEERS = 1_000
GUESSES = 300
KEY_CHANGERS, KEY_CHANGES = 8, 9_000
TOKENS = 60
TOKEN_BYTES = 500_000
SECRET_GUESS = "guessed-secret"
SECONDS = 5.0
OLD_VERSIONS = tuple(ssl.TLSVersion(number) for number in (0x301, 0x302))
"""TLS 1.0 and 1.1."""
STANDS_SECONDS = 1.0
COMES_IN_SECONDS_MAX = 3.0
RETRY_SECONDS = 0.1


def half_handshakes(target: Target) -> Iterator[None]:
    """The first half of a ClientHello, from many sockets that stay open."""
    hello = _client_hello()
    with ExitStack() as stack:
        opened = 0
        for _ in range(HALF_HANDSHAKES):
            with suppress(OSError):
                peer = stack.enter_context(_connect(target))
                peer.sendall(hello[: len(hello) // 2])
                opened += 1
        target.note(opened=opened)
        yield


def whole_handshakes(target: Target) -> Iterator[None]:
    """One handshake after the other, each dropped as soon as it is complete."""
    done = 0
    for _ in range(WHOLE_HANDSHAKES):
        with suppress(OSError), _connect(target) as peer, _encrypted(target, peer):
            done += 1
    target.note(handshakes=done)
    yield


def idle_before_login(target: Target) -> Iterator[None]:
    """Many connections that complete the handshake and never log in."""
    with ExitStack() as stack:
        opened = 0
        for _ in range(IDLE_PEERS):
            with suppress(OSError):
                stack.enter_context(_encrypted(target, stack.enter_context(_connect(target))))
                opened += 1
        target.note(opened=opened)
        yield


def key_changes(target: Target) -> Iterator[None]:
    """Hundreds of kilobytes of TLS records that make the broker derive new keys, all at once."""
    with ExitStack() as stack:
        floods = []
        for number in range(KEY_CHANGERS):
            peer = _connect(target)
            raw = stack.enter_context(peer.dup())
            context = ssl.create_default_context(cafile=_authority(target))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            secrets = Path(f"{target.data}.secrets-{number}")
            context.keylog_filename = str(secrets)
            stack.enter_context(context.wrap_socket(peer, server_hostname="127.0.0.1"))
            secret = client_secret(secrets)
            floods.append((raw, key_updates(secret, KEY_CHANGES, wants_answer=True)))
        for raw, flood in floods:
            with suppress(OSError):
                raw.sendall(flood)
        yield


def giant_tokens(target: Target) -> Iterator[None]:
    """Tokens of half a megabyte for a mechanism of passwords, and frames that never end."""
    token = frame(SASL_AUTHENTICATE, struct.pack(">i", TOKEN_BYTES) + bytes(TOKEN_BYTES))[4:]
    with ExitStack() as stack:
        for number in range(TOKENS):
            with suppress(OSError):
                peer = stack.enter_context(
                    _encrypted(target, stack.enter_context(_connect(target)))
                )
                call(peer, SASL_HANDSHAKE, struct.pack(">h", 5) + b"PLAIN")
                size = len(token) if number % 2 else 100_000_000
                peer.sendall(struct.pack(">i", size) + token)
        yield


def guessed_passwords(target: Target) -> Iterator[None]:
    """Wrong passwords of known and unknown users, as fast as the broker answers."""
    refused = 0
    for number in range(GUESSES):
        user = "honest" if number % 2 else f"nobody-{number}"
        try:
            with _connect(target) as peer:
                Login(_authority(target), user, SECRET_GUESS).enter(peer).close()
        except OSError:
            refused += 1
    target.note(guesses=GUESSES, refused=refused)
    if refused < GUESSES:
        target.found.append(f"{GUESSES - refused} guessed passwords let somebody in")
    yield


def requests_before_login(target: Target) -> Iterator[None]:
    """Requests of every kind, mechanisms that do not exist, and old TLS, without a login."""
    frames = [frame(key, bytes(64), 0) for key in range(100)]
    frames += [
        frame(SASL_HANDSHAKE, struct.pack(">h", len(name)) + name)
        for name in (b"", b"none", b"GSSAPI", b"PLAIN\0", b"X" * 3_000)
    ]
    served = []
    for number, request in enumerate(frames):
        with suppress(OSError), _connect(target) as peer, _encrypted(target, peer) as secured:
            secured.sendall(request)
            answer = secured.recv(1 << 16)
            is_harmless = number in (18, 36) or number >= 100  # ApiVersions, or a SASL error.
            if answer and not is_harmless and number != SASL_HANDSHAKE:
                served.append(number)
    if served:
        target.found.append(f"requests were served without a login: api keys {served}")
    for version in OLD_VERSIONS:
        with suppress(OSError, ValueError), _connect(target) as peer:
            context = ssl.create_default_context(cafile=_authority(target))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # That is the point.
                context.minimum_version = context.maximum_version = version
            context.wrap_socket(peer, server_hostname="127.0.0.1")
            target.found.append(f"a handshake of {version.name} was accepted")
    yield


def no_secret_in_the_log(target: Target) -> list[str]:
    """Neither a guessed password nor a real one may stand in the log."""
    with open(f"{target.data}.log", "rb") as log:
        text = log.read()
    found = [word for word in (SECRET_GUESS, "its-secret") if word.encode() in text]
    lines = text.count(b"event=authentication_failed")
    target.note(lines_of_failures=lines)
    problems = [f"the log has the password {word!r}" for word in found]
    if lines > GUESSES // 2:
        problems.append(f"{lines} log lines about {GUESSES} failed logins")
    return problems


def others_log_in(target: Target) -> list[str]:
    """An honest client of the same address logs in and works while the attack stands.

    It tries again, as every client does: a broker may let a handshake wait for a second before
    another one takes its place.
    """
    limit = time.monotonic() + COMES_IN_SECONDS_MAX
    while (problem := round_trip(target)) is not None and time.monotonic() < limit:
        pause_until(time.monotonic() + RETRY_SECONDS)
    pause_until(time.monotonic() + STANDS_SECONDS)
    return [] if problem is None else [problem]


def _authority(target: Target) -> str:
    assert target.login is not None, "this attack needs a listener with TLS and SASL"
    return target.login.authority


def _connect(target: Target) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.port), timeout=SECONDS)


def _encrypted(target: Target, peer: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=_authority(target))
    return context.wrap_socket(peer, server_hostname="127.0.0.1")


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="broker.example"
    )
    with suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


LOGIN_MIB = 128
"""Handshakes and tokens have budgets of their own, beside those of requests."""

LOGIN_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "half-handshakes",
        "1,500 sockets with half a ClientHello",
        half_handshakes,
        during=others_log_in,
        budget_mib=LOGIN_MIB,
    ),
    Attack(
        "whole-handshakes",
        "600 handshakes, one after the other, each dropped when it is complete",
        whole_handshakes,
        budget_mib=LOGIN_MIB,
        slow=True,
    ),
    Attack(
        "idle-before-login",
        "1,000 connections that complete the handshake and never log in",
        idle_before_login,
        during=others_log_in,
        budget_mib=LOGIN_MIB,
        slow=True,
    ),
    Attack(
        "key-changes",
        "8 connections that each send 9,000 changes of TLS keys and read nothing",
        key_changes,
        during=others_log_in,
        budget_mib=LOGIN_MIB,
        slow=True,
    ),
    Attack(
        "giant-tokens",
        "60 tokens of half a megabyte, and frames that never end",
        giant_tokens,
        during=others_log_in,
        budget_mib=LOGIN_MIB,
        slow=True,
    ),
    Attack(
        "guessed-passwords",
        "300 wrong passwords of known and unknown users",
        guessed_passwords,
        after=no_secret_in_the_log,
        budget_mib=LOGIN_MIB,
        slow=True,
    ),
    Attack(
        "requests-before-login",
        "every kind of request without a login, other mechanisms, old versions of TLS",
        requests_before_login,
        budget_mib=LOGIN_MIB,
    ),
)
