"""The demo's checks: they hold for a course of events that is right, and each can fail.

A small run is written with the workers' own writer: partition 0 holds a good flight, one that
two workers got because of a crash, a poison one and a cancelled one.  Then ledgers or evidence
are falsified, one thing at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.cli.flights.accounts import Accounts
from sharegroup.cli.flights.checks import Evidence, checks
from sharegroup.cli.flights.departures import Kind
from sharegroup.cli.flights.ledger import Delivered, LedgerReader, LedgerWriter, Sent

ACCEPT, RELEASE, REJECT = 1, 2, 3
GOOD, CRASHED, POISON, CANCELLED = 0, 1, 2, 3
LIMIT = 2

EVIDENCE = Evidence(
    rows=4,
    kinds={Kind.GOOD: 2, Kind.POISON: 1, Kind.CANCELLED: 1},
    confirmed=4,
    end_offsets={0: 4},
    dead_letters=frozenset({(0, POISON)}),
    lag={0: 0},
    peak_pss_bytes=300 * 2**20,
)

Written = Callable[[str], str]


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    """Two workers' ledgers of a run that went as it should."""
    one, two = (LedgerWriter(tmp_path / f"worker-{n}.ledger") for n in (1, 2))
    one.delivered(1, [Delivered(0, GOOD, 1, 0), Delivered(0, CRASHED, 1, 0)])
    one.sent(1, [Sent(0, GOOD, ACCEPT), Sent(0, CRASHED, ACCEPT)])
    one.answered(1, {0: "NetworkException: the broker was killed"}, wall_ms=1)
    two.delivered(1, [Delivered(0, CRASHED, 1, 0), Delivered(0, POISON, 1, 0)])
    two.sent(1, [Sent(0, CRASHED, ACCEPT), Sent(0, POISON, REJECT)])
    two.answered(1, {0: None}, wall_ms=2)
    for batch, count in ((2, 1), (3, 2)):
        one.delivered(batch, [Delivered(0, CANCELLED, count, 0)])
        one.sent(batch, [Sent(0, CANCELLED, RELEASE)])
        one.answered(batch, {0: None}, wall_ms=3)
    one.close()
    two.close()
    return tmp_path


def failed(folder: Path, evidence: Evidence = EVIDENCE) -> list[tuple[str, str, str]]:
    """The claims that do not hold, with what was expected and found."""
    accounts = Accounts(delivery_limit=LIMIT)
    for path in sorted(folder.glob("*.ledger")):
        for line in LedgerReader(path).new_lines():
            accounts.feed(path.stem, line)
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


def test_all_checks_hold_for_a_run_that_went_as_it_should(ledgers: Path) -> None:
    assert failed(ledgers) == []


def test_accept_that_was_not_confirmed_is_missed(ledgers: Path) -> None:
    falsify(ledgers, 2, lambda text: text.replace('{"0":null}', '{"0":"InvalidRecordState: no"}'))
    assert failed(ledgers) == [
        ("produced = accepted + rejected + archived", "4", "2"),
        ("accepted = the good ones", "2", "1"),
        ("rejected = the poison ones", "1", "0"),
        ("no record left open", "none", "2: partition 0 offset 1, partition 0 offset 2"),
        ("every dead letter was rejected", "none", "1: partition 0 offset 2"),
    ]


def test_reject_in_place_of_an_accept_is_noticed(ledgers: Path) -> None:
    falsify(
        ledgers,
        1,
        lambda text: text.replace("[0,0,1]]", "[0,0,3]]", 1).replace(
            '"outcomes":[[0,0,1]', '"outcomes":[[0,0,3]', 1
        ),
    )
    claims = [claim for claim, _, _ in failed(ledgers)]
    assert claims == [
        "accepted = the good ones",
        "rejected = the poison ones",
        "every rejected record is a dead letter",
    ]


def test_record_that_came_back_after_its_accept_was_confirmed_is_noticed(ledgers: Path) -> None:
    late = '{"what":"delivered","batch":9,"records":[[0,1,2,0]],"at_us":9000000000000000}\n'
    falsify(ledgers, 1, lambda text: text + late)
    assert failed(ledgers) == [
        ("nothing whose end was confirmed came back", "none", "1: partition 0 offset 1")
    ]


def test_record_that_nobody_saw_is_left_open(ledgers: Path) -> None:
    falsify(ledgers, 1, lambda text: "".join(text.splitlines(keepends=True)[:3]))
    assert failed(ledgers) == [
        ("produced = accepted + rejected + archived", "4", "3"),
        ("archived = the cancelled ones", "1", "0"),
        ("no record left open", "none", "1: partition 0 offset 3"),
    ]


@pytest.mark.parametrize(
    ("false", "claim", "found"),
    [
        ({"end_offsets": {0: 5}}, "every flight was produced, once", "5"),
        ({"confirmed": 3}, "every produce was confirmed", "3"),
        (
            {"dead_letters": frozenset()},
            "every rejected record is a dead letter",
            "1: partition 0 offset 2",
        ),
        (
            {"dead_letters": frozenset({(0, POISON), (0, GOOD)})},
            "every dead letter was rejected",
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
    assert (claim, found) in [(one[0], one[2]) for one in problems]
