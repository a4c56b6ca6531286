"""Mistakes with the data directory: a lost journal, an older one, a directory that is gone.

Every record that was confirmed must be served, or lie untouched in a file; if the broker cannot
serve it, a line of the log says why.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.attacks.batches import honest_batch
from tests.attacks.target import Target, fetch_request, produce_request, produced
from tests.support.processes import ServeProcess, ServeProcessError

RECORDS = 20
JOURNAL = "catalog.journal"
NOTICED_SECONDS_MAX = 90.0

Damage = Callable[[Path, Path], None]
"""Called with the data directory and an older copy of it."""


def _missing(data: Path, older: Path) -> None:
    (data / JOURNAL).unlink()


def _empty(data: Path, older: Path) -> None:
    (data / JOURNAL).write_bytes(b"")


def _older(data: Path, older: Path) -> None:
    shutil.copy(older / JOURNAL, data / JOURNAL)


DAMAGES: dict[str, Damage] = {
    "journal-missing": _missing,
    "journal-empty": _empty,
    "journal-older": _older,
}


def lose_journal(damage: Damage, folder: Path, source: Path | None = None) -> list[str]:
    """Confirm records, damage the journal, start again: the problems."""
    broker = ServeProcess(folder / "data", source=source)
    older = folder / "older"
    with broker:
        values = _confirm(Target(broker.port), "first")
    shutil.copytree(broker.data, older)
    with broker:
        values += _confirm(Target(broker.port), "second")
    damage(broker.data, older)
    problems = []
    served = b""
    before = broker.log_path.stat().st_size
    try:
        broker.start()
        served = _served(Target(broker.port))
    except (ServeProcessError, OSError):
        if len(broker.log_path.read_bytes()) == before:
            problems.append("the broker does not start and says nothing")
    finally:
        broker.kill9()
    stored = _stored(folder / "data")
    lost = [value for value in values if value not in served and value not in stored]
    if lost:
        problems.append(f"{len(lost)} of {len(values)} confirmed records are deleted")
    log = broker.log_path.read_bytes()[before:]
    hidden = [value for value in values if value not in served]
    if hidden and b"WARNING" not in log and b"ERROR" not in log and JOURNAL.encode() not in log:
        problems.append(f"{len(hidden)} records are not served and no line of the log warns of it")
    return problems


def lose_directory(folder: Path, source: Path | None = None) -> list[str]:
    """Delete the data directory of a broker that runs: produce must fail, and the log says so."""
    broker = ServeProcess(folder / "data", source=source)
    problems = []
    try:
        broker.start()
        target = Target(broker.port)
        target.make_topic("first")
        before = broker.log_path.stat().st_size
        shutil.rmtree(broker.data)
        limit = time.monotonic() + NOTICED_SECONDS_MAX
        code = 0
        while code == 0 and broker.running:
            if time.monotonic() > limit:
                problems.append(f"records are still confirmed {NOTICED_SECONDS_MAX} s later")
                break
            with suppress(OSError):
                code = produced(target.ask(produce_request("first", honest_batch(1, b"x"))))
            time.sleep(0.5)
        log = broker.log_path.read_bytes()[before:]
        if b"ERROR" not in log and b"WARNING" not in log:
            problems.append("no line of the log says that the data directory is gone")
    finally:
        broker.kill9()
    return problems


def _confirm(target: Target, topic: str) -> list[bytes]:
    """Produce records of different values, each confirmed: the values."""
    target.make_topic(topic)
    values = [f"{topic}-value-{number:04}".encode() for number in range(RECORDS)]
    for value in values:
        assert produced(target.ask(produce_request(topic, honest_batch(1, value)))) == 0
    return values


def _served(target: Target) -> bytes:
    """The records of both topics as the broker serves them now."""
    found = b""
    for topic in ("first", "second"):
        answer = target.ask(fetch_request(topic))
        for response in answer.responses:
            for partition in response.partitions:
                found += partition.records or b""
    return found


def _stored(folder: Path) -> bytes:
    """The content of all log segments below a folder, wherever they lie."""
    return b"".join(
        (Path(where) / name).read_bytes()
        for where, _, names in os.walk(folder)
        for name in names
        if name != JOURNAL
    )
