"""Frames come out whole and in order however they were cut, and lies are refused at once."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from sharegroup.wire.codec import framing
from sharegroup.wire.codec.framing import FrameError, Frames

LIMIT = 1_000_000


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def take_all(frames: Frames) -> list[bytes]:
    taken = []
    while (frame := frames.next()) is not None:
        taken.append(bytes(frame))
    return taken


@given(
    bodies=st.lists(st.binary(min_size=8, max_size=300), max_size=8),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30),
)
def test_frames_are_independent_of_the_division_of_the_stream(bodies, cuts):
    stream = b"".join(framed(body) for body in bodies)
    frames = Frames(LIMIT)
    taken = []
    position = 0
    for index in range(len(stream)):
        if position >= len(stream):
            break
        size = cuts[index % len(cuts)]
        frames.feed(stream[position : position + size])
        position += size
        taken += take_all(frames)
    assert taken == bodies
    assert frames.buffered_bytes == 0
    assert not frames.partial


def test_frame_received_byte_by_byte_is_joined():
    body = bytes(range(256)) * 40
    whole = Frames(LIMIT)
    for byte in framed(body):
        whole.feed(bytes([byte]))
    assert take_all(whole) == [body]


def test_frame_that_was_joined_is_a_copy_that_may_be_written_to():
    body, frames = b"b" * 20, Frames(LIMIT)
    stream = framed(body)
    frames.feed(stream[:10])
    frames.feed(stream[10:])
    frame = frames.next()
    assert frame is not None
    frame[:1] = b"c"
    assert bytes(frame) == b"c" + b"b" * 19
    assert stream == framed(body)


def test_frame_received_whole_is_a_read_only_view():
    frames = Frames(LIMIT)
    frames.feed(framed(b"b" * 20))
    frame = frames.next()
    assert frame is not None
    assert frame.readonly


@pytest.mark.parametrize(
    "sizes",
    [[1], [5], [100], [1] * 63 + [1024], [1, 1023], [1] * 200 + [65_536], [1000] + [1] * 62],
    ids=lambda sizes: f"{len(sizes)}-of-{sizes[0]}-to-{sizes[-1]}",
)
def test_received_bytes_cost_at_most_half_as_much_again_however_they_are_cut(sizes):
    frames = Frames(2**30)
    frames.feed((500_000).to_bytes(4, "big"))
    chunks = [bytes(size) for size in sizes]
    received = 0
    tracemalloc.start()
    while received < 200_000:
        for chunk in chunks:
            frames.feed(bytes(bytearray(chunk)))  # A copy, as a transport makes one.
            received += len(chunk)
    # Other threads of this process allocate memory at any time.
    ours = [tracemalloc.Filter(True, file) for file in (framing.__file__, __file__)]
    traces = tracemalloc.take_snapshot().filter_traces(ours).traces
    tracemalloc.stop()
    assert received <= sum(trace.size for trace in traces) < 1.5 * received
    assert frames.buffered_bytes == received + 4


def test_bytes_that_are_joined_are_copied_a_few_times_only():
    """A megabyte in single bytes is a frame; were all joined again each time, it would hang."""
    frames = Frames(2**30)
    body = bytes(range(256)) * 4_096
    for at in range(len(body)):
        frames.feed(body[at : at + 1]) if at else frames.feed(len(body).to_bytes(4, "big") + b"\0")
    assert take_all(frames) == [body]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, LIMIT + 1, 2**31 - 1])
def test_length_outside_the_limits_is_refused_before_its_bytes_arrive(length):
    frames = Frames(LIMIT)
    frames.feed(length.to_bytes(4, "big", signed=True))
    with pytest.raises(FrameError, match=f"frame length {length}: expected 8 to 1000000 bytes"):
        frames.next()


def test_largest_and_smallest_frame_pass():
    frames = Frames(64)
    frames.feed(framed(bytes(64)) + framed(bytes(8)))
    assert [len(frame) for frame in take_all(frames)] == [64, 8]


def test_response_of_a_correlation_id_alone_passes_where_responses_are_read():
    frames = Frames(LIMIT, 4)
    frames.feed(framed(b"\0\0\0\7"))
    assert take_all(frames) == [b"\0\0\0\7"]


def test_announced_length_allocates_nothing():
    frames = Frames(100 * 2**20)
    tracemalloc.start()
    frames.feed((100 * 2**20).to_bytes(4, "big"))
    assert frames.next() is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20  # 7,000 bytes, and not the 100 MiB that are announced.


def test_partial_is_true_while_a_frame_is_incomplete():
    frames = Frames(LIMIT)
    assert not frames.partial
    frames.feed(b"\0\0")
    assert frames.next() is None
    assert frames.partial
    frames.feed(b"\0\x08")
    assert frames.next() is None
    assert frames.partial
    frames.feed(b"12345678")
    assert take_all(frames) == [b"12345678"]
    assert not frames.partial


def test_frame_inside_one_chunk_is_not_copied():
    chunk = framed(b"12345678")
    frames = Frames(LIMIT)
    frames.feed(chunk)
    frame = frames.next()
    assert frame is not None
    assert frame.obj is chunk
