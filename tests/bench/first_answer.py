"""When does a broker answer?  The smallest Metadata exchange, by hand, over a plain socket.

A client library would add its own start and its own back-off; a loop of raw frames sees the
first answer within milliseconds.  Metadata version 4, for it can be told not to create topics.
"""

from __future__ import annotations

import socket
import struct
import time

METADATA, VERSION = 3, 4
RETRY_SECONDS = 0.002
ANSWER_SECONDS_MAX = 5.0


def wait_for_metadata(port: int, seconds: float, topic: str | None = None) -> float:
    """Seconds until an answer that lists the broker and, if named, a leader of the topic."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        try:
            answered = _answer_is_complete(_exchange(port, topic), topic)
        except OSError:
            answered = False
        if answered:
            return time.perf_counter() - begin
        time.sleep(RETRY_SECONDS)
    raise TimeoutError(f"no complete metadata answer from port {port} in {seconds} s")


def _exchange(port: int, topic: str | None) -> bytes:
    topics = struct.pack(">i", 0) if topic is None else struct.pack(">i", 1) + _string(topic)
    request = struct.pack(">hhi", METADATA, VERSION, 1) + _string("bench") + topics + b"\x00"
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as peer:
        peer.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(peer, 4))
        return _receive(peer, length)


def _answer_is_complete(answer: bytes, topic: str | None) -> bool:
    brokers, at = _int32(answer, 8)  # After correlation id and throttle time.
    for _ in range(brokers):
        _, at = _text(answer, at + 4)
        _, at = _text(answer, at + 4)
    _, at = _text(answer, at)  # The cluster id; then the controller's id.
    topics, at = _int32(answer, at + 4)
    if brokers < 1 or topics != (topic is not None):
        return False
    if topic is None:
        return True
    (error,) = struct.unpack_from(">h", answer, at)
    _, at = _text(answer, at + 2)
    partitions, at = _int32(answer, at + 1)
    if error or partitions < 1:
        return False
    partition_error, _, leader = struct.unpack_from(">hii", answer, at)
    return partition_error == 0 and leader >= 0


def _receive(peer: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        some = peer.recv(length - len(received))
        if not some:
            raise ConnectionError("the broker closed the connection")
        received += some
    return bytes(received)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _text(answer: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", answer, at)
    end = at + 2 + max(0, length)
    return answer[at + 2 : end].decode(), end


def _int32(answer: bytes, at: int) -> tuple[int, int]:
    return struct.unpack_from(">i", answer, at)[0], at + 4
