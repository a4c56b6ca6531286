"""The proxy that tests of a cluster cut networks with: what passes, what waits, what is refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS
from tests.support.tcp_proxy import Link, Proxy

SHORT = 0.05
"""Long enough for bytes on loopback; on a slow machine a broken test may pass, never fail."""


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGING_SECONDS)
        yield listener


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as there:
        yield there


@pytest.fixture
def link(proxy: Proxy, target: socket.socket) -> Link:
    there = proxy.link(("127.0.0.1", 0), target.getsockname())
    _until_listening(there, target)
    return there


def _until_listening(link: Link, target: socket.socket) -> None:
    """Wait for the link, and take the connection by which it found that the target listens."""
    done = threading.Event()
    for _ in range(1_000):
        if link.listens:
            target.accept()[0].close()
            return
        done.wait(0.01)
    raise AssertionError("the link does not listen")


def _client(link: Link) -> socket.socket:
    client = socket.create_connection(link.address, timeout=HANGING_SECONDS)
    client.settimeout(HANGING_SECONDS)
    return client


def _pair(link: Link, target: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = _client(link)
    server, _ = target.accept()
    server.settimeout(HANGING_SECONDS)
    return client, server


def _silent(connection: socket.socket) -> bool:
    connection.settimeout(SHORT)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(HANGING_SECONDS)
    return False


def test_bytes_and_ends_pass_in_both_directions(link: Link, target: socket.socket) -> None:
    client, server = _pair(link, target)
    with client, server:
        block = bytes(range(256)) * 4_000
        for sender, receiver in ((client, server), (server, client)):
            thread = threading.Thread(target=sender.sendall, args=(block,))
            thread.start()
            got = b""
            while len(got) < len(block):
                got += receiver.recv(65_536)
            thread.join()
            assert got == block
        client.shutdown(socket.SHUT_WR)
        assert server.recv(1) == b""
        server.sendall(b"last words")
        assert client.recv(100) == b"last words"


@pytest.mark.parametrize("forward", [True, False])
def test_cut_direction_is_silent_and_other_one_passes(
    link: Link, target: socket.socket, forward: bool
) -> None:
    client, server = _pair(link, target)
    with client, server:
        cut, whole = (client, server) if forward else (server, client)
        link.cut(forward=forward, backward=not forward)
        cut.sendall(b"late")
        assert _silent(whole)
        whole.sendall(b"at once")
        assert cut.recv(100) == b"at once"
        link.heal()
        assert whole.recv(100) == b"late"


def test_end_of_a_connection_does_not_pass_a_cut(link: Link, target: socket.socket) -> None:
    client, server = _pair(link, target)
    with server:
        link.cut()
        client.close()
        assert _silent(server)
        link.heal()
        assert server.recv(1) == b""


def test_reset_caused_by_a_write_does_not_pass_a_cut(link: Link, target: socket.socket) -> None:
    client, server = _pair(link, target)
    with server:
        link.cut(backward=False)  # The server can send, but receives nothing.
        client.close()
        for _ in range(10):
            server.sendall(b"anybody there?")
            assert _silent(server)
        link.heal()
        with pytest.raises(ConnectionResetError):
            server.recv(1)


def test_new_connection_waits_while_either_direction_is_cut(
    link: Link, target: socket.socket
) -> None:
    link.cut(backward=False)
    with _client(link) as client:
        client.sendall(b"early")
        target.settimeout(SHORT)
        with pytest.raises(TimeoutError):
            target.accept()
        target.settimeout(HANGING_SECONDS)
        link.heal()
        server, _ = target.accept()
        with server:
            server.settimeout(HANGING_SECONDS)
            assert server.recv(100) == b"early"


def test_reset_cut_resets_open_and_new_connections(link: Link, target: socket.socket) -> None:
    client, server = _pair(link, target)
    with client, server:
        link.cut(reset=True)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionResetError):
            server.recv(1)
    with pytest.raises(ConnectionResetError), _client(link) as refused:
        refused.recv(1)


def test_link_refuses_while_target_does_not_listen_and_keeps_its_port(proxy: Proxy) -> None:
    (port,) = free_ports(1)
    link = proxy.link(("127.0.0.1", 0), ("127.0.0.1", port))
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            _client(link)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(link.address)
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.settimeout(HANGING_SECONDS)
            _until_listening(link, listener)
            client, server = _pair(link, listener)
            with client, server:
                listener.close()
                link.unlisten()
                client.sendall(b"open connections stay")
                assert server.recv(100)


def test_closed_target_refuses_connections(proxy: Proxy) -> None:
    (port,) = free_ports(1)
    link = proxy.link(("127.0.0.1", 0), ("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as listener:
        _until_listening(link, listener)
    with pytest.raises(ConnectionError), _client(link) as client:
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        _client(link)


def test_slow_reader_slows_its_writer(link: Link, target: socket.socket) -> None:
    """A link holds back what it cannot deliver: its memory has a limit."""
    client, server = _pair(link, target)
    with client, server:
        client.settimeout(SHORT)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while True:
                sent += client.send(bytes(65_536))
        client.close()
        received = 0
        while block := server.recv(1 << 20):
            received += len(block)
        assert received == sent
        assert sent < 64 << 20
