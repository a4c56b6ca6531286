"""The broker in this process: real connections and handlers, no sockets, a clock moved by hand."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import struct
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.create_topics.v7 import request as create_topics
from kio.serial import entity_reader
from kio.serial.errors import OutOfBoundValue

from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.server import connection
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.codec.apis import DECLARED_HERE, response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from tests.faults.in_process import prepare_all
from tests.fuzz.frames import valid_frame
from tests.fuzz.honest import TOPICS, new_topic
from tests.fuzz.messages import Known

API_VERSIONS = 18
CONNECTIONS = 4
ANSWERS_KEPT = 4_000
CPU_SAMPLE_STEPS = 16
SLOW_SECONDS = 0.5
NOTED_SECONDS = 0.05
SETTINGS = {
    "sharegroup.durability": "os",
    "sharegroup.share.state.apis.enable": "true",
    "sharegroup.partitions.max": "2000",
    "log.segment.bytes": "1048576",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}
_EVENTS = ("event=request_failed", "event=response_not_encoded")


class Step(NamedTuple):
    """Bytes for one of the connections, often several frames, and how far the clock moves then."""

    connection: int
    data: bytes
    advance_ms: int


class Finding(NamedTuple):
    """Something that must not happen; equal signatures are the same defect."""

    signature: str
    text: str


class _Log(logging.Handler):
    """Collects tracebacks and errors; everything else is counted and dropped."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.findings: list[Finding] = []
        self._logger = logging.getLogger("sharegroup")
        self._before = self._logger.level, self._logger.propagate, self._logger.handlers

    def install(self) -> None:
        """Take the place of all other handlers, until `remove`."""
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        self._logger.handlers = [self]
        # One line for each frame that is refused: no finding, but a tenth of the time.
        logging.getLogger(connection.__name__).setLevel(logging.ERROR)

    def remove(self) -> None:
        level, self._logger.propagate, self._logger.handlers = self._before
        self._logger.setLevel(level)
        logging.getLogger(connection.__name__).setLevel(logging.NOTSET)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.findings.append(finding_of(record.exc_info[1], record.getMessage()))
        elif any(event in str(record.msg) for event in _EVENTS):
            self.findings.append(Finding(record.getMessage()[:80], record.getMessage()))


class Collections:
    """Measures full garbage collections: those of this process are not the broker's."""

    def __init__(self) -> None:
        self._seconds = self._began = 0.0
        gc.callbacks.append(self._note)

    def taken(self) -> float:
        """Seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def end(self) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._seconds += time.perf_counter() - self._began


class RunningClock(ManualClock):
    """A clock that runs between the steps by which it is moved, so that long work is sliced."""

    __slots__ = ("_seen_ms",)

    def __init__(self) -> None:
        super().__init__()
        self._seen_ms = time.perf_counter_ns() // 1_000_000

    def now_ms(self) -> int:
        seen_ms = time.perf_counter_ns() // 1_000_000
        self._now_ms += seen_ms - self._seen_ms  # Timers wait for `advance`.
        self._seen_ms = seen_ms
        return self._now_ms


class Transport(asyncio.Transport):
    """A transport whose peer takes everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 9092)})
        self.written: list[bytes] = []
        self.is_open = True
        self.is_reading_now = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.written.append(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_reading(self) -> bool:
        return self.is_reading_now

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False


class Peer:
    """One connection to the broker and the answers that came through it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self.transport = Transport()
        self.expected: dict[int, tuple[int, int]] = {}
        self._rest = b""
        protocol.connection_made(self.transport)

    def answers(self) -> list[bytes]:
        """Whole frames without their lengths, as far as they came."""
        data = self._rest + b"".join(self.transport.written)
        self.transport.written.clear()
        frames, at = [], 0
        while len(data) - at >= 4:
            (size,) = struct.unpack_from(">i", data, at)
            if len(data) - at - 4 < size:
                break
            frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        self._rest = data[at:]
        return frames

    def end(self) -> None:
        self.transport.is_open = False
        self.protocol.connection_lost(None)


class Engine:
    """One life of a broker; `feed` gives it one step."""

    def __init__(self, running: app.Running, clock: ManualClock, folder: Path, log: _Log) -> None:
        self._running = running
        self._clock = clock
        self._folder = folder
        self._log = log
        self._peers: dict[int, Peer] = {}
        self.known = Known()
        self.topic_ids: dict[str, UUID] = {}
        self.findings: list[Finding] = []
        self.answers = 0
        self.checked = 0
        self.slow: Counter[str] = Counter()
        """Steps for which the broker computed longer than `NOTED_SECONDS`, by their API keys."""
        self.slowest = (0.0, b"")
        self._collections = Collections()
        self._steps = 0
        self._cpu = time.thread_time()

    @property
    def reached(self) -> int:
        """Requests that were decoded and answered by a handler."""
        return sum(api.seconds.count for api in self._running.parts.requests.by_api.values())

    @property
    def refused(self) -> int:
        """Frames that were no requests: their connections were closed."""
        return self._running.parts.requests.bad_count

    @classmethod
    async def start(cls, folder: Path, handler_of: HandlerOf = handler_of) -> Engine:
        """A broker with some topics on an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        clock = RunningClock()
        log = _Log()
        log.install()
        config = Config.parse(SETTINGS | {"log.dirs": str(folder)})
        running = await app.start(config, clock=clock, handler_of=handler_of)
        prepare_all(running, handler_of)
        engine = cls(running, clock, folder, log)
        asyncio.get_running_loop().set_exception_handler(engine._loop_failed)
        await engine._set_up()
        return engine

    async def feed(self, step: Step, asked: Sequence[tuple[int, int, int]] = ()) -> None:
        """Give the bytes to a connection, let the broker work, move the clock, look at answers.

        Kio's own reader must understand the answers with these correlation ids, API keys and
        versions.
        """
        peer = self._peer(step.connection)
        for correlation_id, key, version in asked:
            peer.expected[correlation_id] = (key, version)
        self._collections.taken()
        began = time.perf_counter()
        try:
            peer.protocol.data_received(step.data)
        except Exception as error:  # noqa: BLE001  Every one is a finding.
            self.findings.append(finding_of(error, "raised into the transport"))
        await asyncio.sleep(0)
        self._clock.advance(step.advance_ms / 1000)
        if step.advance_ms:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._steps += 1
        seconds = time.perf_counter() - began - self._collections.taken()
        limit = min(NOTED_SECONDS, self.slowest[0])
        if seconds > limit or self._steps % CPU_SAMPLE_STEPS == 0:
            # A busy machine makes any step slow; this also counts the few steps before it.
            seconds = min(seconds, self._computed())
        if seconds > self.slowest[0]:
            self.slowest = (seconds, step.data)
        if seconds > NOTED_SECONDS:
            self._note_slow(step, seconds)
        self._read(peer)
        if not peer.transport.is_open:
            self.end(step.connection)
        self._take_log()

    def crowded(self, connection: int) -> bool:
        """Whether the broker does not read from this connection at the moment."""
        peer = self._peers.get(connection)
        return peer is not None and not peer.transport.is_reading_now

    async def stop(self) -> None:
        """Stop the broker in order, and delete its data."""
        for number in list(self._peers):
            self.end(number)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                await self._running.stop()
        except Exception as error:  # noqa: BLE001  A broker that does not stop is a finding.
            self.findings.append(finding_of(error, "stop"))
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # As at the end of a process: they wait for what is closed now.
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        gc.collect()  # Futures tell now that nobody took their exceptions.
        self._take_log()
        self._log.remove()
        self._collections.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def translated(self, data: bytes, ids: dict[str, UUID]) -> bytes:
        """The same bytes with the topic ids of this life for those of another."""
        for name, old in ids.items():
            data = data.replace(old.bytes, self.topic_ids[name].bytes)
        return data

    async def _set_up(self) -> None:
        for name in TOPICS[:-1]:  # The last one is for CreateTopics to make.
            request = create_topics.CreateTopicsRequest(
                topics=(new_topic(name),), timeout=timedelta(seconds=5)
            )
            peer = self._peer(0)
            peer.protocol.data_received(valid_frame(request))
            frames: list[bytes] = []
            for _ in range(1_000):
                await asyncio.sleep(0.001)
                frames = peer.answers()
                if frames:
                    break
            answer, _ = decode(response_class(19, 7), frames[0], 5)
            self.topic_ids[name] = answer.topics[0].topic_id
        self.known.topic_ids = list(self.topic_ids.values())

    def _peer(self, number: int) -> Peer:
        if number not in self._peers:
            connection = self._running.server._accepted(0, None)
            assert isinstance(connection, asyncio.Protocol)
            self._peers[number] = Peer(connection)
        return self._peers[number]

    def end(self, number: int) -> None:
        """The peer closes a connection."""
        peer = self._peers.pop(number)
        with suppress(KeyError):
            peer.end()

    def _read(self, peer: Peer) -> None:
        for frame in peer.answers():
            self.answers += 1
            (correlation_id,) = struct.unpack_from(">i", frame)
            asked = peer.expected.pop(correlation_id, None)
            if asked is not None:
                self.checked += 1
                found = check_answer(frame, *asked, self.known)
                if found is not None:
                    self.findings.append(found)
        if len(peer.expected) > ANSWERS_KEPT:
            peer.expected.clear()  # Requests without an answer: acks=0.

    def _computed(self) -> float:
        """CPU seconds of this thread since the last call, which takes too long for every step."""
        before, self._cpu = self._cpu, time.thread_time()
        return self._cpu - before

    def _note_slow(self, step: Step, seconds: float) -> None:
        keys = " ".join(str(key) for key in sorted({api_key(data) for data in split(step.data)}))
        self.slow[keys] += 1
        if seconds > SLOW_SECONDS:
            self.findings.append(Finding(f"slow: api keys {keys}", f"{seconds:.2f} s of CPU"))

    def _take_log(self) -> None:
        if self._log.findings:
            self.findings += self._log.findings
            self._log.findings = []

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.findings.append(finding_of(error, str(context.get("message"))))


def check_answer(frame: bytes, key: int, version: int, known: Known) -> Finding | None:
    """Read the answer as kio does, and learn its ids; None: it is as it should be."""
    if key == API_VERSIONS and frame[4:6] == b"\0\x23":
        version = 0  # UNSUPPORTED_VERSION comes in version 0, whatever was asked.
    at = 5 if response_header_version(key, version) == 1 else 4
    cls = response_class(key, version)
    try:
        # kio's reader does not know the error codes of the messages that it does not have.
        if (key, version) in DECLARED_HERE:
            response, end = decode(cls, frame, at)
            size = end - at
        else:
            try:
                response, size = entity_reader(cls)(frame, at)
            except OutOfBoundValue:
                # kio reads no time before 1970, and that of a transaction that has not begun is -1.
                response, end = decode(cls, frame, at)
                size = end - at
    except Exception as error:  # noqa: BLE001  Every one is a finding.
        found = finding_of(error, f"answer of api key {key} version {version}: {frame.hex()}")
        return found._replace(signature=f"answer {key}: {found.signature}")
    if at + size != len(frame):
        text = f"api key {key} version {version}: {len(frame) - at - size} bytes are left"
        return Finding(f"answer {key} has bytes left", text)
    known.learn(response, int.from_bytes(frame[:4], signed=True))
    return None


def split(data: bytes) -> list[bytes]:
    """The frames that stand one behind the other; the last one may be broken."""
    frames, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at) if at + 4 <= len(data) else (-1,)
        end = at + 4 + size if 0 <= size <= len(data) - at - 4 else len(data)
        frames.append(data[at:end])
        at = end
    return frames


def api_key(frame: bytes) -> int:
    """The API key in a frame; -1: there is none."""
    return int.from_bytes(frame[4:6], signed=True) if len(frame) > 5 else -1


def finding_of(error: BaseException, what: str) -> Finding:
    """The signature is the exception and the innermost line of our own code."""
    trace = traceback.extract_tb(error.__traceback__)
    ours = [entry for entry in trace if "/sharegroup/" in entry.filename]
    last = ours[-1] if ours else (trace[-1] if trace else None)
    where = "nowhere"
    if last is not None:
        where = f"{last.filename.rpartition('/sharegroup/')[2]}:{last.name}"
    text = "".join(traceback.format_exception(error))
    return Finding(f"{type(error).__name__} in {where}", f"{what}\n{text[-3000:]}")
