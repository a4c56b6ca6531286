"""The verdict of a soak sees slow windows, lost records and growing memory."""

from __future__ import annotations

from typing import Any

from tests.soak.honest import Account
from tests.soak.verdict import Verdict, judge

GOOD = {"lost": 0, "doubles_unexplained": 0}


def window(rate: float) -> dict[str, float]:
    return {"seconds": 10.0, "accepted": 6 * rate, "fetched": 4 * rate}


def judged(rates: list[float], **changes: Any) -> Verdict:
    given: dict[str, Any] = {
        "account": {"work": GOOD},
        "memory_mib": [100.0] * 20,
        "memory_limit_mib": 650.0,
        "probe_slowest": 0.2,
        "log": "",
    }
    return judge([window(1_000)] * 5, [window(rate) for rate in rates], **(given | changes))


def test_a_soak_that_held_has_no_problem() -> None:
    verdict = judged([600.0, 500.0, 210.0, 800.0])
    assert verdict.problems == []
    assert (verdict.reference, verdict.median_share, verdict.lowest_share) == (1_000, 0.55, 0.21)


def test_low_median_and_low_window_are_problems() -> None:
    assert len(judged([400.0, 450.0, 900.0]).problems) == 1
    assert len(judged([900.0, 900.0, 190.0]).problems) == 1


def test_short_windows_are_not_judged() -> None:
    verdict = judge(
        [window(1_000)],
        [window(900), {"seconds": 0.5, "accepted": 0, "fetched": 0}],
        account={},
        memory_mib=[],
        memory_limit_mib=0,
        probe_slowest=0,
        log="",
    )
    assert verdict.problems == []


def test_losses_doubles_memory_probe_and_tracebacks_are_problems() -> None:
    rates = [900.0] * 3
    assert judged(rates, account={"work": GOOD | {"lost": 1}}).problems
    assert judged(rates, account={"work": GOOD | {"doubles_unexplained": 1}}).problems
    assert judged(rates, memory_mib=[100.0] * 10 + [170.0] * 10).problems
    assert judged(rates, memory_mib=[100.0] * 19 + [700.0]).problems
    assert judged(rates, probe_slowest=1.1).problems
    assert judged(rates, log="Traceback (most recent call last):").problems


def test_account_counts_lost_records_and_doubles() -> None:
    account = Account()
    lost, double, explained, fine = (account.next() for _ in range(4))
    for number in (lost, double, explained, fine):
        account.confirm(number)
    for number in (double, double, explained, explained, fine):
        account.accept(number)
    account.explained[explained] = 1
    assert account.behind() == 1
    assert not account.is_done()
    assert account.outcome() == {
        "sent": 4, "confirmed": 4, "accepted": 3,
        "lost": 1, "doubles": 2, "doubles_unexplained": 1,
    }  # fmt: skip
