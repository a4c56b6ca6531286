"""The fuzzer through real sockets: a broker process, an honest probe beside it, its log watched.

Every connection sends a burst of frames, of which only the last one may be refused, and waits for
the answers.  How many frames came to a handler, and how many were refused, the broker's own
metrics say.
"""

from __future__ import annotations

import random
import selectors
import shutil
import socket
import ssl
import struct
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from tests.attacks.entrance import Entrance
from tests.attacks.harness import slowness
from tests.attacks.probe import Probe
from tests.attacks.target import Target
from tests.faults.login import Login
from tests.fuzz.engine import API_VERSIONS, SETTINGS, Finding, Step, check_answer
from tests.fuzz.findings import CASES, minimised
from tests.fuzz.frames import Frame, FrameMaker
from tests.fuzz.honest import TOPICS
from tests.fuzz.in_process import GROWTH_BYTES_MAX, HISTORY_STEPS, Totals, burst, checked
from tests.fuzz.messages import Known
from tests.support.kafka_peer import free_ports
from tests.support.processes import ServeProcess, ServeProcessError, rss_bytes
from tests.support.scraping import scrape

CONNECTIONS = 48
CALM_LINES = 8
BURST_FRAMES_MAX = 40
SHARES = (0.6, 0.25)
"""Valid frames, and frames with broken values; the others are broken anywhere."""
STUCK_SECONDS = 0.3
"""A connection whose requests all wait is given up after this."""
WAITS_MS = (0, 0, 0, 0, 0, 0, 1, 5, -1)
LIFE_FRAMES = 1_000_000
LIFE_SECONDS = 300.0
LOOK_SECONDS = 0.1
"""How often the log and the process are looked at."""
PROBE_SECONDS_MAX = 1.0
READY_SECONDS_MAX = 60.0
BROKER_SETTINGS = {key: value for key, value in SETTINGS.items() if key != "listeners"} | {
    "group.initial.rebalance.delay.ms": "0"
}
_PING_BODY = struct.pack(">hhih", API_VERSIONS, 0, -7, -1)
PING = struct.pack(">i", len(_PING_BODY)) + _PING_BODY
"""The end of a burst: its answer says that the frames before it are done."""
_BROKEN = (b"Traceback", b"event=request_failed", b"event=response_not_encoded")
_ENDED = struct.pack("ii", 1, 0)
"""SO_LINGER: a connection ends at once, and its port is free."""


_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Line:
    """One connection, the frames of its burst, and the bytes on the way."""

    def __init__(self, port: int, login: Login | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ENDED)
        if login is not None:
            self.socket = login.enter(self.socket)
        self.socket.setblocking(False)
        self.asked: dict[int, tuple[int, int]] = {}
        """API key and version of the answers that are read, by correlation id."""
        self.is_waiting = False
        self.out = b""
        self.rest = b""
        self.active = time.monotonic()

    def send(self, frames: list[Frame], asked: list[tuple[int, int, int]]) -> bytes:
        """Send a burst; the bytes without the ping."""
        data = b"".join([frame.data for frame in frames])
        self.asked = {correlation_id: (key, version) for correlation_id, key, version in asked}
        self.is_waiting = True
        self.out = data + PING
        self.active = time.monotonic()
        self.flush()
        return data

    def flush(self) -> None:
        with suppress(*_NOT_NOW):
            while self.out:
                self.out = self.out[self.socket.send(self.out) :]

    def receive(self) -> list[bytes] | None:
        """Whole answers; None when the broker closed the connection."""
        try:
            data = self.socket.recv(1 << 20)
            while isinstance(self.socket, ssl.SSLSocket) and (pending := self.socket.pending()):
                data += self.socket.recv(pending)  # No selector tells of it.
        except _NOT_NOW:
            return []
        except OSError:
            return None
        if not data:
            return None
        data, frames, at = self.rest + data, [], 0
        while len(data) - at >= 4:
            (size,) = struct.unpack_from(">i", data, at)
            if len(data) - at - 4 < size:
                break
            frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        self.rest = data[at:]
        self.active = time.monotonic()
        return frames


class _Life:
    """One broker process and the frames that it gets."""

    def __init__(
        self, broker: ServeProcess, dice: random.Random, totals: Totals, login: Login | None
    ) -> None:
        self._broker = broker
        self._login = login
        self._dice = dice
        self._totals = totals
        self.known = Known(waits_ms=WAITS_MS)
        self._maker = FrameMaker(dice, self.known, shares=SHARES)
        self._lines: dict[int, _Line] = {}
        self._selector = selectors.DefaultSelector()
        self.findings: list[Finding] = []
        self.history: deque[Step] = deque(maxlen=HISTORY_STEPS)
        self.sent = 0
        self.pings = 0

    def run(self, limit: float, frames_max: int) -> None:
        for number in range(CONNECTIONS):
            self._open(number)
        log_size = self._broker.log_path.stat().st_size
        looked = time.monotonic()
        while looked < limit and self.sent < frames_max and not self.findings:
            for key, events in self._selector.select(LOOK_SECONDS):
                self._serve(key.data, events)
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                self._leave_stuck(now)
                log_size = self._look_at_log(log_size)
                if not self._broker.running:
                    found = Finding("the broker process ended", self._broker.log_tail())
                    self.findings.append(found)
        for line in self._lines.values():
            line.socket.close()
        self._totals.sent += self.sent
        self._totals.versions.update(self._maker.versions)

    def _serve(self, number: int, events: int) -> None:
        line = self._lines[number]
        try:
            if events & selectors.EVENT_WRITE:
                line.flush()
                self._watch(number, line)
            if events & selectors.EVENT_READ:
                answers = line.receive()
                if answers is None:
                    self._open(number)
                    return
                for answer in answers:
                    self._take(line, answer)
            if not line.is_waiting:
                self._send(number, line)
        except OSError:
            self._open(number)

    def _send(self, number: int, line: _Line) -> None:
        calm = number if number < CALM_LINES else None
        made = burst(self._maker, self._dice, BURST_FRAMES_MAX, calm)
        self.sent += len(made)
        self.history.append(Step(number, line.send(made, checked(made, self._dice)), 0))
        if line.out:
            self._watch(number, line)

    def _watch(self, number: int, line: _Line) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.out else 0)
        self._selector.modify(line.socket, events, number)

    def _take(self, line: _Line, answer: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id == -7:
            line.is_waiting = False
            self.pings += 1
            return
        self._totals.answers += 1
        asked = line.asked.pop(correlation_id, None)
        if asked is not None:
            self._totals.checked += 1
            found = check_answer(answer, *asked, self.known)
            if found is not None:
                self.findings.append(found)

    def _leave_stuck(self, now: float) -> None:
        for number, line in list(self._lines.items()):
            if now - line.active > STUCK_SECONDS:
                self._totals.stuck += 1
                self._open(number)

    def _open(self, number: int) -> None:
        """A new connection in place of an old one, and its first burst."""
        old = self._lines.pop(number, None)
        if old is not None:
            self._selector.unregister(old.socket)
            old.socket.close()
        try:
            line = self._lines[number] = _Line(self._broker.port, self._login)
        except OSError:
            if self._broker.running:
                raise
            return
        self._selector.register(line.socket, selectors.EVENT_READ, number)
        with suppress(OSError):
            self._send(number, line)

    def _look_at_log(self, position: int) -> int:
        size = self._broker.log_path.stat().st_size
        if size > position:
            self.findings += _in_log(self._broker, position)
        return size


def _in_log(broker: ServeProcess, position: int) -> list[Finding]:
    """What must not stand in the log from this byte on."""
    with open(broker.log_path, "rb") as file:
        file.seek(position)
        text = file.read()
    for word in _BROKEN:
        at = text.find(word)
        if at >= 0:
            found = text[max(0, at - 300) : at + 3_000].decode(errors="replace")
            return [Finding("log: " + word.decode(), found)]
    return []


def _restarted(broker: ServeProcess) -> list[Finding]:
    """Kill the broker; it has to start again on what it was made to store."""
    broker.kill9()
    position = broker.log_path.stat().st_size
    try:
        broker.start(wait=False)
        broker.wait_ready(READY_SECONDS_MAX)
    except ServeProcessError as error:
        return [Finding("restart", str(error))]
    return _in_log(broker, position)


async def run(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    cases: Path | None = CASES,
    frames_max: int = 1 << 62,
    is_secured: bool = False,
) -> Totals:
    """Fuzz broker processes, one after the other, until the time is up.

    If they are secured, frames come through TLS from a user with few rights (`Entrance`).
    """
    totals = Totals()
    entrance = Entrance(folder.parent.parent / "certificates") if is_secured else None
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and totals.sent < frames_max:
        life_seed = seed * 1_000_003 + totals.lives
        left = min(LIFE_FRAMES, frames_max - totals.sent)
        until = min(limit, time.monotonic() + LIFE_SECONDS)
        await _life(folder, life_seed, until, left, totals, cases, entrance)
        totals.lives += 1
    return totals


async def _life(
    folder: Path,
    seed: int,
    limit: float,
    frames: int,
    totals: Totals,
    cases: Path | None,
    entrance: Entrance | None,
) -> None:
    shutil.rmtree(folder.parent, ignore_errors=True)
    (metrics_port,) = free_ports(1)
    settings = BROKER_SETTINGS | {"sharegroup.metrics.port": str(metrics_port)}
    attacker = honest = None
    if entrance is not None:
        settings |= entrance.settings
        attacker, honest = entrance.attacker, entrance.honest
    broker = ServeProcess(folder, durability="os", settings=settings, log_level="warning")
    began = time.monotonic()
    broker.start(wait=False)
    try:
        broker.wait_ready(READY_SECONDS_MAX)
        probe_limit = PROBE_SECONDS_MAX * slowness(time.monotonic() - began)
        if entrance is not None:
            entrance.let_in()
        life = _Life(broker, random.Random(seed), totals, attacker)
        ids = _make_topics(Target(broker.port, login=honest))
        life.known.topic_ids = list(ids.values())
        idle = rss_bytes(broker.pid)
        with Probe(broker.port, honest) as probe:
            before = _counted(metrics_port, Totals())
            life.run(limit, frames)
            if broker.running:
                after = _counted(metrics_port, totals)
                totals.reached += after[0] - before[0] - life.pings
                totals.refused += after[1] - before[1]
        totals.reached -= len(probe.latencies)
        totals.slowest = max(totals.slowest, (probe.slowest, b"probe"))
        totals.probes += probe.latencies
        if probe.slowest > probe_limit:
            life.findings.append(Finding("probe", f"the probe waited {probe.slowest:.2f} s"))
        if broker.running and rss_bytes(broker.pid) - idle > GROWTH_BYTES_MAX:
            text = f"{(rss_bytes(broker.pid) - idle) >> 20} MiB more than idle"
            life.findings.append(Finding("memory", text))
        if broker.running and not life.findings:
            life.findings += _restarted(broker)
    finally:
        broker.kill9()
    for found in life.findings:
        totals.findings.setdefault(found.signature, found.text)
        totals.counts[found.signature] = totals.counts.get(found.signature, 0) + 1
        print(f"FOUND seed={seed}: {found.signature}\n{found.text}", flush=True)
        if cases is not None and found.signature not in ("probe", "memory", "restart"):
            case = await minimised(folder, found, list(life.history), ids, any_finding=True)
            where = case.save(cases) if case is not None else "does not show again in process"
            print(f"  case: {where}", flush=True)


def _counted(metrics_port: int, totals: Totals) -> tuple[int, int]:
    """Requests that were answered and frames that were refused, as the broker counted them."""
    metrics = scrape(metrics_port)
    for (api,), count in metrics.all("sharegroup_request_holds_total").items():
        if count:
            totals.slow[api] += int(count)
    reached = sum(metrics.all("kafka_network_request_seconds_count").values())
    return int(reached), int(metrics("sharegroup_bad_requests_total"))


def _make_topics(target: Target) -> dict[str, UUID]:
    for name in TOPICS[:-1]:
        configs = {"cleanup_policy": "compact"} if name == "compacted" else {}
        target.make_topic(name, 50 if name == "wide" else 3, **configs)
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=name) for name in TOPICS[:-1]),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return {topic.name: topic.topic_id for topic in target.ask(request).topics}
