"""TLS between a raw transport and a protocol, with a client in memory."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.tls.context import make_context
from sharegroup.broker.tls.records import OTHER_RECORDS_MAX, PIECE_RECORDS, ReceivedRecords
from sharegroup.broker.tls.transport import (
    HANDSHAKE_BYTES_MAX,
    HANDSHAKE_RECORDS_MAX,
    PIECE_BYTES,
    RAW_BUFFER_BYTES_MAX,
    Buffers,
    TlsLayer,
)
from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.core.security.principal import Principal
from tests.support.key_updates import client_secret, key_updates
from tests.support.processes import rss_bytes

ALICE = Principal("User", "alice")
MIB = 1 << 20
BUFFERS = Buffers()
"""All connections of a broker share them."""

KEPT_BYTES_MAX = 450_000
"""Memory of an open connection, with 100 KB for the contexts of this test.  With pieces of 256 KiB
(`PIECE_BYTES`) it was 700 KB."""

ANSWER_BYTES_MAX = 27 * (OTHER_RECORDS_MAX + 2 * PIECE_RECORDS)
"""What a flood of new keys makes the broker write at most."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return make_certificates(folder, hosts=["localhost"], clients=["alice"])


class RawTransport:
    """A socket's transport: what is written is in ``sent`` until a test takes it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.layer: Any = None
        self.is_full = False
        """Whether the peer reads nothing, so bytes stay in the buffer."""
        self.is_reading, self.has_ended, self.is_closed, self.is_aborted = True, False, False, False

    def write(self, data: bytes) -> None:
        self.sent += data
        if self.is_full and len(self.sent) > RAW_BUFFER_BYTES_MAX:
            self.layer.pause_writing()

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.write(b"".join(chunks))

    def take(self) -> bytes:
        taken = bytes(self.sent)
        self.sent.clear()
        return taken

    def get_write_buffer_size(self) -> int:
        return len(self.sent) if self.is_full else 0

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == RAW_BUFFER_BYTES_MAX

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("10.0.0.1", 50_000) if name == "peername" else default

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Handshaker:
    """Lets every handshake go on at once."""

    context: ssl.SSLContext
    is_full: bool = False
    user: Callable[[], Principal | None] = lambda: None
    certificates: list[bytes | None] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    misuses: list[str] = field(default_factory=list)
    closed_count: int = 0
    outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    def accepted(self, layer: TlsLayer) -> bool:
        return not self.is_full

    def received(self, layer: TlsLayer) -> None:
        layer.shake()

    def new_object(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        self.outgoing = outgoing
        return self.context.wrap_bio(incoming, outgoing, server_side=True)

    def completed(self, layer: TlsLayer, certificate: bytes | None) -> Principal | None:
        self.certificates.append(certificate)
        return self.user()

    def failed(self, layer: TlsLayer, reason: str) -> None:
        self.failures.append(reason)

    def misused(self, layer: TlsLayer, reason: str) -> None:
        self.misuses.append(reason)

    def closed(self, layer: TlsLayer) -> None:
        self.closed_count += 1


class Protocol(asyncio.Protocol):
    """What the layer calls."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.calls: list[str] = []
        self.transport: Any = None
        self.on_data: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=4 * MIB)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.on_data()

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")


class Client:
    """A TLS client in memory, connected to a layer."""

    def __init__(self, handshaker: Handshaker, context: ssl.SSLContext) -> None:
        self.raw, self.protocol, self.handshaker = RawTransport(), Protocol(), handshaker
        self.buffers = BUFFERS
        self.layer = TlsLayer(
            handshaker, lambda _: self.protocol, self.buffers, connection_id=1, now_ms=0
        )
        self.raw.layer = self.layer
        self.layer.connection_made(self.raw)  # type: ignore[arg-type]  # What it calls.
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self) -> None:
        """Do the handshake, as far as it goes."""
        for _ in range(4):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
            else:
                break
        self.exchange()

    def exchange(self) -> None:
        """Send what there is to the layer, and receive its bytes."""
        self.deliver(self.outgoing.read())
        self.incoming.write(self.raw.take())

    def deliver(self, data: bytes) -> None:
        """Give bytes to the layer, as the event loop does."""
        while data:
            buffer = self.layer.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.layer.buffer_updated(count)
            data = data[count:]

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        self.exchange()

    def read_all(self) -> bytes:
        """All bytes that were received and can be decrypted."""
        found = bytearray()
        while True:
            try:
                data = self.tls.read(MIB)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return bytes(found)
            if not data:
                return bytes(found)
            found += data


def handshaker_of(files: CertificateFiles, client_auth: str = "none") -> Handshaker:
    tls = TlsConfig(
        keystore_type="PEM",
        keystore_location=str(files.server),
        truststore_type="PEM",
        truststore_location=str(files.authority),
        client_auth=client_auth,
    )
    return Handshaker(make_context(tls))


def client_context(files: CertificateFiles, *, user: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.authority)
    if user:
        context.load_cert_chain(files.client(user))
    return context


def connected(files: CertificateFiles) -> Client:
    client = Client(handshaker_of(files), client_context(files))
    client.shake()
    assert client.protocol.transport is not None
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_go_both_ways(files: CertificateFiles, version: ssl.TLSVersion) -> None:
    context = client_context(files)
    context.maximum_version = context.minimum_version = version
    client = Client(handshaker_of(files), context)
    client.shake()
    client.send(b"question")
    assert client.protocol.received == b"question"
    client.protocol.transport.writelines([b"an", b"", memoryview(b"swer")])
    client.exchange()
    assert client.read_all() == b"answer"


def test_large_messages_arrive_whole_in_both_directions(files: CertificateFiles) -> None:
    client = connected(files)
    question = bytes(range(256)) * 8_192  # 2 MiB
    client.send(question)
    assert client.protocol.received == question
    chunks = [question[:100], question[100:40_000], question[40_000:]]
    client.protocol.transport.writelines(chunks)
    client.exchange()
    assert client.read_all() == question


def test_small_chunks_share_a_record(files: CertificateFiles) -> None:
    client = connected(files)
    client.exchange()
    client.protocol.transport.writelines([b"x" * 20] * 500)
    assert len(client.raw.sent) < 10_000 + 100


def test_bytes_that_came_with_the_end_of_the_handshake_are_not_lost(
    files: CertificateFiles,
) -> None:
    client = Client(handshaker_of(files), client_context(files))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.exchange()
    client.tls.do_handshake()
    client.tls.write(b"at once")
    client.exchange()
    assert client.protocol.received == b"at once"


def test_protocol_that_pauses_gets_nothing_until_it_resumes(files: CertificateFiles) -> None:
    client = connected(files)
    transport = client.protocol.transport
    client.protocol.on_data = transport.pause_reading
    client.send(b"x" * MIB)
    before = len(client.protocol.received)
    assert 0 < before < MIB
    assert not client.raw.is_reading

    async def resume() -> None:
        client.protocol.on_data = lambda: None
        transport.resume_reading()
        assert len(client.protocol.received) == before, "not within the call"
        await asyncio.sleep(0)

    asyncio.run(resume())
    assert client.raw.is_reading
    assert len(client.protocol.received) > before


def test_slow_reader_stops_the_protocol_and_costs_few_encrypted_bytes(
    files: CertificateFiles,
) -> None:
    client = connected(files)
    client.exchange()
    client.raw.is_full = True
    answer = bytes(range(256)) * 32_768  # 8 MiB
    client.protocol.transport.writelines([answer])
    assert client.protocol.calls == ["pause"]
    assert len(client.raw.sent) < PIECE_BYTES + RAW_BUFFER_BYTES_MAX
    assert client.protocol.transport.get_write_buffer_size() >= len(answer)
    received = bytearray()
    while client.layer.unsent_bytes:
        client.incoming.write(client.raw.take())
        client.layer.resume_writing()
        received += client.read_all()
    received += client.read_all()
    assert received == answer
    assert client.protocol.calls == ["pause", "resume"]


def test_close_sends_everything_and_the_notice_that_nothing_follows(
    files: CertificateFiles,
) -> None:
    client = connected(files)
    client.raw.is_full = True
    client.protocol.transport.writelines([b"x" * MIB])
    client.protocol.transport.close()
    assert not client.raw.is_closed, "the peer has not read all of it"
    received = bytearray()
    while not client.raw.is_closed:
        client.incoming.write(client.raw.take())
        client.layer.resume_writing()
        received += client.read_all()
    client.incoming.write(client.raw.take())
    received += client.read_all()
    assert received == b"x" * MIB
    assert client.tls.read(1) == b"", "the end, with notice"


def test_abort_loses_what_was_not_sent(files: CertificateFiles) -> None:
    client = connected(files)
    client.raw.is_full = True
    client.protocol.transport.writelines([b"x" * MIB])
    client.protocol.transport.abort()
    assert client.raw.is_aborted
    assert client.protocol.transport.get_write_buffer_size() == 0
    client.layer.connection_lost(None)
    assert client.protocol.calls[-1] == "lost"


def connected_with_secret(files: CertificateFiles, folder: Path) -> tuple[Client, bytes]:
    """A client, and the secret with which its records are encrypted."""
    context = client_context(files)
    context.keylog_filename = str(folder / "secrets")
    client = Client(handshaker_of(files), context)
    client.shake()
    return client, client_secret(folder / "secrets")


@pytest.mark.parametrize("wants_answer", [False, True])
def test_flood_of_new_keys_ends_the_connection_before_it_costs_time_and_memory(
    files: CertificateFiles, tmp_path: Path, wants_answer: bool
) -> None:
    client, secret = connected_with_secret(files, tmp_path)
    client.raw.take()
    client.deliver(key_updates(secret, 1_000, wants_answer=wants_answer))
    assert client.raw.is_aborted
    assert client.handshaker.misuses == [
        f"more than {OTHER_RECORDS_MAX} TLS records without content"
    ]
    # No answer was sent, and OpenSSL has handled only the pieces up to the limit.
    assert len(client.raw.sent) + client.handshaker.outgoing.pending <= ANSWER_BYTES_MAX
    assert client.protocol.received == b""


def test_flood_of_new_keys_behind_the_handshake_is_not_handled_at_once(
    files: CertificateFiles, tmp_path: Path
) -> None:
    context = client_context(files)
    context.keylog_filename = str(tmp_path / "secrets")
    client = Client(handshaker_of(files), context)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.exchange()
    client.tls.do_handshake()
    flood = key_updates(client_secret(tmp_path / "secrets"), 1_000, wants_answer=True)
    client.deliver(client.outgoing.read() + flood)
    assert client.raw.is_aborted
    assert client.handshaker.outgoing.pending <= ANSWER_BYTES_MAX


def test_client_may_change_its_keys_now_and_then(files: CertificateFiles, tmp_path: Path) -> None:
    client, secret = connected_with_secret(files, tmp_path)
    client.raw.take()
    client.deliver(key_updates(secret, OTHER_RECORDS_MAX // 2, wants_answer=True))
    assert not client.raw.is_aborted
    assert len(client.raw.sent) > 27, "it answers"


def test_closed_connection_frees_the_buffers_of_tls_without_the_garbage_collector(
    files: CertificateFiles,
) -> None:
    client = connected(files)
    transport = client.protocol.transport  # Whoever still refers to the connection.
    of_openssl = weakref.ref(transport.get_extra_info("ssl_object"))
    assert of_openssl() is not None
    client.layer.connection_lost(None)
    assert of_openssl() is None
    assert transport.get_write_buffer_size() == 0
    references = sys.getrefcount(client.handshaker.outgoing)  # One is the argument.
    assert references == 2, "only the test refers to it"


def client_without_tickets(
    files: CertificateFiles, handshaker: Handshaker | None = None
) -> tuple[Handshaker, Client]:
    """A client with a certificate, of TLS 1.2: its session stays with the broker."""
    context = client_context(files, user="alice")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    handshaker = handshaker or handshaker_of(files, "required")
    return handshaker, Client(handshaker, context)


@pytest.mark.parametrize("ends_first", ["client", "broker", "nobody"])
def test_sessions_of_clients_without_tickets_are_forgotten_with_their_connections(
    files: CertificateFiles, ends_first: str
) -> None:
    """OpenSSL would keep 20,480 of them for two hours, 225 MB with client certificates."""
    handshaker = handshaker_of(files, "required")
    for _ in range(3):
        _, client = client_without_tickets(files, handshaker)
        client.shake()
        assert handshaker.context.session_stats()["number"] == 1, "it is kept while it is open"
        if ends_first == "client":
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
            client.exchange()
            assert client.raw.is_closed
        elif ends_first == "broker":
            client.protocol.transport.close()
            assert client.raw.is_closed
        client.layer.connection_lost(None)
        assert handshaker.context.session_stats()["number"] == 0


@pytest.mark.parametrize("step", [1, 1_000])
def test_sessions_without_tickets_are_forgotten_if_the_end_comes_with_the_last_bytes(
    files: CertificateFiles, step: int
) -> None:
    handshaker, client = client_without_tickets(files)
    client.shake()
    client.tls.write(b"the last request")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    sent = client.outgoing.read()
    for at in range(0, len(sent), step):
        client.deliver(sent[at : at + step])
    assert client.protocol.received == b"the last request"
    assert client.raw.is_closed
    client.layer.connection_lost(None)
    assert handshaker.context.session_stats()["number"] == 0


def test_an_alert_waits_until_tls_needs_it_and_is_dropped_where_it_ends_the_connection() -> None:
    """TLS may complete the handshake with the record before it, as when a session is resumed."""
    finished, alert = b"\x16\x03\x03\x00\x01f", b"\x15\x03\x03\x00\x02\x01\x00"
    incoming, records = ssl.MemoryBIO(), ReceivedRecords()
    records.feed(memoryview(finished + alert), incoming)
    assert incoming.read() == finished
    assert records.feed_more(incoming)
    assert incoming.read() == alert
    records.feed(memoryview(finished + alert + finished), incoming)
    assert incoming.read() == finished
    records.alerts_end = True
    assert not records.feed_more(incoming)
    assert records.has_ended
    records.feed(memoryview(finished), incoming)
    assert incoming.read() == b""


@pytest.mark.parametrize("count", [2, 3_000, 17_000])
def test_sessions_without_tickets_are_forgotten_in_the_middle_of_a_record(
    files: CertificateFiles, count: int
) -> None:
    handshaker, client = client_without_tickets(files)
    client.shake()
    client.protocol.transport.pause_reading()
    client.tls.write(bytes(32_000))
    client.deliver(client.outgoing.read()[:count])
    assert handshaker.context.session_stats()["number"] == 1
    client.layer.connection_lost(None)
    assert handshaker.context.session_stats()["number"] == 0
    assert client.handshaker.misuses == []


def test_many_small_records_that_are_cut_anywhere_arrive(files: CertificateFiles) -> None:
    client = connected(files)
    for number in range(20 * PIECE_RECORDS):
        client.tls.write(b"%05d" % number)
    sent = client.outgoing.read()
    step = 997
    for at in range(0, len(sent), step):
        client.deliver(sent[at : at + step])
    expected = b"".join(b"%05d" % number for number in range(20 * PIECE_RECORDS))
    assert client.protocol.received == expected
    assert client.handshaker.misuses == []


def test_protocol_that_pauses_gets_the_waiting_records_when_it_resumes(
    files: CertificateFiles,
) -> None:
    client = connected(files)
    transport = client.protocol.transport
    client.protocol.on_data = transport.pause_reading
    for _ in range(2):
        for _ in range(4 * PIECE_RECORDS):
            client.tls.write(b"x" * 10)
        client.exchange()
        assert len(client.protocol.received) == 40 * PIECE_RECORDS, "of the first exchange"

    async def resume() -> None:
        client.protocol.on_data = lambda: None
        transport.resume_reading()
        await asyncio.sleep(0)

    asyncio.run(resume())
    assert len(client.protocol.received) == 80 * PIECE_RECORDS


def test_open_connection_keeps_little_memory_after_large_messages(files: CertificateFiles) -> None:
    """OpenSSL keeps the largest buffer that it has needed for a connection, in each direction."""
    count, message = 60, bytes(MIB)
    layers = []
    before = rss_bytes(os.getpid())
    for _ in range(count):
        client = connected(files)
        client.send(message)
        client.protocol.transport.writelines([message])
        client.protocol.received.clear()
        client.raw.take()
        del client.tls, client.incoming, client.outgoing
        layers.append(client.layer)
    assert (rss_bytes(os.getpid()) - before) / count < KEPT_BYTES_MAX
    assert all(layer.unsent_bytes == 0 for layer in layers)


def test_handshake_of_many_records_is_cut(files: CertificateFiles) -> None:
    client = Client(handshaker_of(files), client_context(files))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = client.outgoing.read()[5:]
    client.deliver(b"".join(b"\x16\x03\x01\x00\x01%c" % byte for byte in hello))
    assert client.handshaker.failures == [
        f"the TLS handshake has more than {HANDSHAKE_RECORDS_MAX} records"
    ]


def test_end_by_the_peer_closes_the_connection(files: CertificateFiles) -> None:
    client = connected(files)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()
    assert client.raw.is_closed


def test_damaged_record_closes_the_connection(files: CertificateFiles) -> None:
    client = connected(files)
    client.tls.write(b"question")
    record = bytearray(client.outgoing.read())
    record[-1] ^= 1
    client.deliver(bytes(record))
    assert client.raw.is_closed
    assert client.protocol.received == b""


def test_certificate_of_a_client_gives_the_connection_its_user(files: CertificateFiles) -> None:
    handshaker = handshaker_of(files, "required")
    handshaker.user = lambda: ALICE
    client = Client(handshaker, client_context(files, user="alice"))
    client.shake()
    assert client.protocol.transport.get_extra_info("principal") == ALICE
    assert handshaker.certificates[0] is not None


def test_connection_without_a_certificate_has_no_user(files: CertificateFiles) -> None:
    client = connected(files)
    assert client.protocol.transport.get_extra_info("principal") is None
    assert client.handshaker.certificates == [None]


def test_client_that_has_no_certificate_is_told_so(files: CertificateFiles) -> None:
    client = Client(handshaker_of(files, "required"), client_context(files))
    client.shake()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        client.tls.read(1)
    assert client.handshaker.failures == [
        "the TLS handshake failed: peer did not return a certificate"
    ]
    assert client.protocol.transport is None
    assert client.raw.has_ended
    assert not client.raw.is_aborted


def test_certificate_without_a_user_ends_the_connection(files: CertificateFiles) -> None:
    def refuse() -> Principal | None:
        raise PermissionError("no rule")

    handshaker = handshaker_of(files, "required")
    handshaker.user = refuse
    client = Client(handshaker, client_context(files, user="alice"))
    client.shake()
    assert handshaker.failures == ["no rule"]
    assert client.protocol.transport is None


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x20\x00\x12\x00\x03"])
def test_bytes_that_are_not_tls_are_named_so(files: CertificateFiles, data: bytes) -> None:
    client = Client(handshaker_of(files), client_context(files))
    client.deliver(data)
    assert client.handshaker.failures == [
        "the peer sent bytes that are not TLS; does it use PLAINTEXT?"
    ]


def test_handshake_without_end_is_cut(files: CertificateFiles) -> None:
    """Empty records are legal, and each of them is waited for a next one."""
    client = Client(handshaker_of(files), client_context(files))
    hello = b"\x16\x03\x01\x40\x00\x01\x03\x00\x00" + bytes(0x3FFC)
    for _ in range(HANDSHAKE_BYTES_MAX // len(hello) + 2):
        if not client.handshaker.failures:
            client.deliver(hello)
    assert len(client.handshaker.failures) == 1


def test_connection_that_is_not_accepted_is_closed_at_once(files: CertificateFiles) -> None:
    handshaker = handshaker_of(files)
    handshaker.is_full = True
    client = Client(handshaker, client_context(files))
    assert client.raw.is_aborted


def test_peer_that_leaves_during_the_handshake_is_a_failure(files: CertificateFiles) -> None:
    client = Client(handshaker_of(files), client_context(files))
    client.layer.connection_lost(None)
    assert client.handshaker.failures == ["the peer closed the connection during the TLS handshake"]
    assert client.handshaker.closed_count == 1


def test_renegotiation_is_refused(files: CertificateFiles) -> None:
    context = handshaker_of(files).context
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_turn_of_a_peer_that_has_gone_does_nothing(files: CertificateFiles) -> None:
    client = Client(handshaker_of(files), client_context(files))
    client.raw.close()
    client.layer.shake()
    assert client.handshaker.failures == []
    client.layer.connection_lost(None)
    assert client.handshaker.closed_count == 1
