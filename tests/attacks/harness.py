"""Runs one attack against a broker process and says what did not hold.

The order: start; an honest round trip; prepare; from here on the probe asks and memory is
watched; the attack, held at its ``yield``; the honest checks beside it; the attack lets go; an
honest round trip; SIGKILL; a restart that must be ready within 3 s; an honest round trip.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.attacks.attack import Attack
from tests.attacks.entrance import Entrance
from tests.attacks.honest import round_trip
from tests.attacks.probe import Probe
from tests.attacks.target import MIB, Target
from tests.support.kafka_peer import free_ports
from tests.support.processes import (
    ServeProcess,
    ServeProcessError,
    peak_rss_bytes,
    reset_peak_rss,
    rss_bytes,
)

PROBE_SECONDS_MAX = 1.0
PROBE_P99_SECONDS_MAX = 0.1
RESTART_SECONDS_MAX = 3.0
START_SECONDS = 0.6
"""The first start of a broker on a quiet machine."""
BESIDE_OTHERS = 3.0
"""How much slower a broker may be at least, in `make test-slow`, where two others run beside it."""
GAVE_UP_SECONDS = 60.0
SLACK_MIB = 100
AFTERMATH_SECONDS = 0.5
LOG_MIB_MAX = 8
IS_QUIET = os.environ.get("ATTACKS_QUIET") == "1"
"""The machine has nothing else to do: the 99th percentile of the probe is judged, too."""
_NEXT_LINE = re.compile(rb"\n(?=\d{4}-\d\d-)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass
class Report:
    """What was measured under one attack, and the problems: none means that it held."""

    name: str
    problems: list[str] = field(default_factory=list)
    probe_max: float = 0.0
    probe_p99: float = 0.0
    idle_mib: int = 0
    peak_mib: int = 0
    kept_mib: int = 0
    restarted_mib: int = 0
    start_seconds: float = 0.0
    """The first start, on an empty folder."""
    restart_seconds: float = 0.0
    seconds: float = 0.0
    seen: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        verdict = "held  " if not self.problems else "BROKEN"
        figures = " ".join(f"{key}={value}" for key, value in self.seen.items())
        text = (
            f"{verdict} {self.name:28} probe max {self.probe_max:6.3f} p99 {self.probe_p99:6.3f} s"
            f"  memory {self.idle_mib} -> {self.peak_mib}, kept {self.kept_mib}, restarted "
            f"{self.restarted_mib} MiB  attack {self.seconds:.1f} s  restart "
            f"{self.restart_seconds:.2f} s  {figures}"
        )
        return "\n    ".join([text, *self.problems])


def run(
    attack: Attack, folder: Path, source: Path | None = None, entrance: Entrance | None = None
) -> Report:
    """Run ``attack`` on a broker of its own; ``source`` holds another version of the broker.

    With an ``entrance`` everybody comes in through TLS and SASL, and the attacker has few rights.
    """
    report = Report(attack.name)
    settings = dict(attack.settings) if source is None else _known(attack.settings, source)
    settings |= {} if entrance is None else entrance.settings
    metrics_port = -1
    if "sharegroup.metrics.port" in settings:
        (metrics_port,) = free_ports(1)
        settings["sharegroup.metrics.port"] = str(metrics_port)
    broker = ServeProcess(
        folder / "data",
        durability="os",
        settings=settings,
        source=source,
        descriptors_max=attack.descriptors_max,
    )
    began = time.monotonic()
    try:
        broker.start()
    except ServeProcessError as error:
        report.problems.append(f"the broker does not start: {str(error)[-300:]}")
        return report
    report.start_seconds = time.monotonic() - began
    honest = None if entrance is None else entrance.honest
    target = Target(broker.port, data=str(broker.data), metrics_port=metrics_port, login=honest)
    attacker = target
    if entrance is not None:
        entrance.let_in()
        attacker = target.seen_by(entrance.attacker)
    report.seen = target.seen
    try:
        _attack(attack, broker, target, attacker, report)
        if broker.running:
            broker.kill9()
        _restart(attack, broker, target, report)
        _judge_log(broker, report)
    finally:
        broker.kill9()
    return report


def slowness(start_seconds: float) -> float:
    """How many times slower than a quiet machine this one is, by the time of a broker's start.

    Limits of time are multiplied by it, unless the machine is said to be quiet.
    """
    return 1.0 if IS_QUIET else max(BESIDE_OTHERS, start_seconds / START_SECONDS)


def _known(settings: Mapping[str, str], source: Path) -> dict[str, str]:
    """The settings that an older version of the broker has."""
    text = "".join(path.read_text() for path in source.rglob("broker/configuration/*_config.py"))
    return {key: value for key, value in settings.items() if f'"{key}"' in text}


def _attack(
    attack: Attack, broker: ServeProcess, target: Target, attacker: Target, report: Report
) -> None:
    _honest(target, report, "before the attack")
    attack.prepare(target)
    report.idle_mib = rss_bytes(broker.pid) // MIB
    reset_peak_rss(broker.pid)
    probe = Probe(broker.port, target.login)
    try:
        with probe:
            began = time.monotonic()
            with _held(attack, attacker, report):
                report.problems += attack.during(target)
            report.seconds = time.monotonic() - began
            time.sleep(AFTERMATH_SECONDS)  # The probe meets what the attack left behind.
    except Exception as error:  # noqa: BLE001  Whatever the probe met is a finding.
        report.problems.append(f"probe: {type(error).__name__}: {error}")
    report.problems += target.found
    if not broker.running:
        report.problems.append("the broker process ended")
        return
    if probe.latencies:
        report.probe_max, report.probe_p99 = probe.slowest, probe.p99
        limit = PROBE_SECONDS_MAX * slowness(report.start_seconds)
        if probe.slowest > limit:
            report.problems.append(
                f"an honest client waited {probe.slowest:.2f} s, {limit:.1f} is the limit"
            )
        if IS_QUIET and probe.p99 > PROBE_P99_SECONDS_MAX:
            report.problems.append(f"1% of the probes waited over {probe.p99:.3f} s, limit 0.1")
    report.peak_mib = peak_rss_bytes(broker.pid) // MIB
    report.kept_mib = rss_bytes(broker.pid) // MIB
    _judge_memory(report, "peak", report.peak_mib, attack.budget_mib)
    _judge_memory(report, "kept", report.kept_mib, attack.kept_mib)
    report.problems += attack.after(target)
    _honest(target, report, "after the attack")


@contextmanager
def _held(attack: Attack, target: Target, report: Report) -> Iterator[None]:
    """The attack stands at its ``yield``; an attacker that was thrown out has not won."""
    steps = attack.round(target)
    with suppress(StopIteration):
        try:
            next(steps)
        except OSError as error:
            report.seen[f"attacker_met_{type(error).__name__}"] = 1
        yield
        try:
            next(steps)
        except OSError as error:
            report.seen[f"attacker_met_{type(error).__name__}"] = 1


def _restart(attack: Attack, broker: ServeProcess, target: Target, report: Report) -> None:
    began = time.monotonic()
    try:
        broker.start(wait=False)
        broker.wait_ready(GAVE_UP_SECONDS)
    except ServeProcessError as error:
        report.problems.append(f"the broker does not start again: {str(error)[-300:]}")
        return
    report.restart_seconds = time.monotonic() - began
    report.restarted_mib = rss_bytes(broker.pid) // MIB
    limit = RESTART_SECONDS_MAX * slowness(report.start_seconds)
    if report.restart_seconds > limit:
        report.problems.append(
            f"the restart took {report.restart_seconds:.1f} s, {limit:.1f} is the limit"
        )
    _judge_memory(report, "after the restart", report.restarted_mib, attack.kept_mib)
    _honest(target, report, "after the restart")


def _honest(target: Target, report: Report, when: str) -> None:
    problem = round_trip(target)
    if problem is not None:
        report.problems.append(f"{when}: {problem}")


def _judge_memory(report: Report, what: str, mib: int, budget_mib: int) -> None:
    limit = report.idle_mib + budget_mib + SLACK_MIB
    if mib > limit:
        report.problems.append(f"memory {what}: {mib} MiB, limit {limit} MiB")


def _judge_log(broker: ServeProcess, report: Report) -> None:
    text = broker.log_path.read_bytes()
    report.seen["log_kib"] = len(text) >> 10
    if len(text) > LOG_MIB_MAX * MIB:
        report.problems.append(f"the log has {len(text) // MIB} MiB, {LOG_MIB_MAX} is the limit")
    at = text.find(b"Traceback")
    if at >= 0:
        trace = _NEXT_LINE.split(text[at:], maxsplit=1)[0][-400:].decode(errors="replace")
        report.problems.append(f"a traceback in the log: ...{trace.strip()}")
    if _CONTROL.search(text) or b"\nevent=forged" in text:
        report.problems.append("a peer's control characters stand in the log as they are")
