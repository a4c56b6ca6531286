"""The demo's checks: they hold for a course of events that is right, and each can fail.

A small run is written with the workers' own writer: partition 0 holds a good flight, one that
two workers got because of a crash, a poison one and a cancelled one.  Then ledgers or evidence
are falsified, one thing at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.flights.accounts import Accounts
from examples.flights.checks import Evidence, checks
from examples.flights.departures import Kind
from examples.flights.ledger import Begun, Ended, LedgerReader, LedgerWriter
from examples.flights.names import ATTEMPTS

GOOD, CRASHED, POISON, CANCELLED = 0, 1, 2, 3

EVIDENCE = Evidence(
    rows=4,
    kinds={Kind.GOOD: 2, Kind.POISON: 1, Kind.CANCELLED: 1},
    confirmed=4,
    end_offsets={0: 4},
    dead_letters={(0, POISON): "unreadable", (0, CANCELLED): "attempts-exhausted"},
    lag={0: 0},
    peak_pss_bytes=300 * 2**20,
)

Written = Callable[[str], str]


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    """Two workers' ledgers of a run that went as it should."""
    first, two = (LedgerWriter(tmp_path / f"worker-{n}.ledger") for n in (1, 2))
    first.begun(1, [Begun(0, GOOD, 1, 1, 0), Begun(0, CRASHED, 1, 1, 0)])
    first.ended(1, [Ended(0, GOOD, True), Ended(0, CRASHED, True)], wall_ms=1)
    two.begun(1, [Begun(0, CRASHED, 1, 2, 0)])
    two.ended(1, [Ended(0, CRASHED, True)], wall_ms=2)
    two.buried(0, POISON, "unreadable")
    for attempt in range(1, ATTEMPTS + 1):
        first.begun(1 + attempt, [Begun(0, CANCELLED, attempt, 1, 0)])
        first.ended(1 + attempt, [Ended(0, CANCELLED, False)], wall_ms=3)
    first.buried(0, CANCELLED, "attempts-exhausted")
    first.close()
    two.close()
    return tmp_path


def failed(
    folder: Path, evidence: Evidence = EVIDENCE, *, killed: str = "worker-1"
) -> list[tuple[str, str, str]]:
    """The claims that do not hold, with what was expected and found."""
    accounts = Accounts()
    for path in sorted(folder.glob("*.ledger")):
        for line in LedgerReader(path).new_lines():
            accounts.feed(path.stem, line)
    accounts.worker_killed(killed, dict(accounts.items())[0, CRASHED].done_us)
    return [
        (check.claim, check.expected, check.found)
        for check in checks(accounts, evidence)
        if not check.holds
    ]


def falsify(folder: Path, worker: int, change: Written) -> None:
    path = folder / f"worker-{worker}.ledger"
    before = path.read_text()
    after = change(before)
    assert after != before, "the ledger does not hold what was to be falsified"
    path.write_text(after)


def without(what: str, *, last: bool = False) -> Written:
    """Lose the first line of a kind, or the last."""

    def lose(text: str) -> str:
        lines = text.splitlines(keepends=True)
        found = [index for index, line in enumerate(lines) if json.loads(line)["what"] == what]
        del lines[found[-1 if last else 0]]
        return "".join(lines)

    return lose


def test_all_checks_pass_for_a_correct_run(ledgers: Path) -> None:
    assert failed(ledgers) == []


def test_unfinished_flight_is_reported_as_open(ledgers: Path) -> None:
    falsify(ledgers, 1, without("ended"))
    falsify(ledgers, 2, without("ended"))
    assert ("no flight is left open", "none", "2: partition 0 offset 0, partition 0 offset 1") in (
        failed(ledgers)
    )


def test_dead_letter_unknown_to_its_worker_is_reported(ledgers: Path) -> None:
    falsify(ledgers, 2, without("buried"))
    assert failed(ledgers) == [
        ("produced = done + dead letters", "4", "3"),
        ("no flight is left open", "none", "1: partition 0 offset 2"),
        ("every dead letter is known to its worker", "none", "1: partition 0 offset 2"),
    ]


def test_unexplained_redelivery_is_reported(ledgers: Path) -> None:
    assert failed(ledgers, killed="worker-2") == [
        ("nothing came back but what a crash interrupted", "none", "1: partition 0 offset 1")
    ]


def test_flight_with_too_few_attempts_is_reported(ledgers: Path) -> None:
    def lose_a_run(text: str) -> str:
        return without("begun", last=True)(without("ended", last=True)(text))

    falsify(ledgers, 1, lose_a_run)
    assert failed(ledgers) == [
        ("every cancelled flight was tried often enough", "none", "1: partition 0 offset 3")
    ]


@pytest.mark.parametrize(
    ("false", "claim", "found"),
    [
        ({"end_offsets": {0: 5}}, "every flight was produced, once", "5"),
        ({"confirmed": 3}, "every produce was confirmed", "3"),
        ({"dead_letters": {}}, "unreadable dead letters = the poison ones", "0"),
        (
            {"dead_letters": {(0, POISON): "unreadable"}},
            "every worker's dead letter is there",
            "1: partition 0 offset 3",
        ),
        (
            {"dead_letters": {**EVIDENCE.dead_letters, (0, GOOD): "rejected"}},
            "no flight is both done and a dead letter",
            "1: partition 0 offset 0",
        ),
        ({"lag": {0: 1}}, "the broker's lag is 0", "1: partition 0 lag 1"),
        ({"lag": {}}, "the broker's lag is 0", "1: partition 0 lag unknown"),
        (
            {"peak_pss_bytes": 3 * 2**30},
            "memory of all processes stays within 2 GiB",
            "3,072 MiB",
        ),
    ],
)
def test_each_other_source_can_contradict(
    ledgers: Path, false: dict[str, Any], claim: str, found: str
) -> None:
    problems = failed(ledgers, replace(EVIDENCE, **false))
    assert (claim, found) in [(problem[0], problem[2]) for problem in problems]
