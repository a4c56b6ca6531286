"""The failures of held records survive a stop (`App.test`)."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker import App, Reject, Retry
from sharegroup.worker.testing.history import Outcome

SOON = Retry(initial_delay="1s", multiplier=1, jitter=0)


def test_stop_keeps_the_failures_of_a_record_whose_retry_runs_or_waits_for_a_slot() -> None:
    """Two held records are due: one retry runs, and one waits for the slot, at the stop."""

    async def test() -> list[tuple[bytes | None, int]]:
        app = App("holding")
        failed: set[bytes] = set()

        async def fail_then_hang(value: bytes) -> None:
            if value not in failed:
                failed.add(value)
                raise TimeoutError
            await asyncio.Event().wait()

        app.share_group(
            "billing", topics="orders", handler=fail_then_hang, concurrency=1, retry=SOON,
            max_handling="1h",
        )  # fmt: skip
        async with app.test(patience_seconds=0.2) as t:
            await t.send("orders", b"a")
            await t.send("orders", b"b")
            await t.advance("2s")
        copies = t.in_topic("billing.retry")
        return [(copy.value, story_of(copy.headers).failures) for copy in copies]

    assert sorted(asyncio.run(test())) == [(b"a", 1), (b"b", 1)]


def test_record_whose_letter_cannot_be_made_by_a_fault_of_ours_is_released_and_then_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is delivered three times, and is neither accepted nor rejected; others are settled."""

    def broken(*_: object, **__: object) -> tuple[()]:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    async def test() -> None:
        app = App("holding")
        runs: list[bytes] = []

        async def reject(value: bytes) -> None:
            runs.append(value)
            if value == b"bad":
                raise Reject("no")

        app.share_group("billing", topics="orders", handler=reject, concurrency=2)
        with monkeypatch.context() as patch:
            patch.setattr("sharegroup.worker.dead_letters.letter_headers", broken)
            async with app.test(patience_seconds=0.2) as t:
                bad = await t.send("orders", b"bad")
                good = await t.send("orders", b"good")
                await t.advance("10m")
                assert runs.count(b"bad") == 4, "three releases, then it is held"
                assert good.outcome == Outcome.ACCEPTED
                assert bad.outcome not in (Outcome.ACCEPTED, Outcome.DEAD_LETTERED)
                patch.undo()  # As if the program was mended.
                await t.advance("1m")
                assert bad.outcome == Outcome.DEAD_LETTERED
                assert runs.count(b"bad") == 4

    asyncio.run(test())


def test_outputs_of_a_retry_that_a_stop_interrupted_are_not_written() -> None:
    """They would be in the transaction that writes the record to the retry topic."""

    async def test() -> tuple[list[int], list[object]]:
        app = App("holding")
        runs: list[str] = []

        @app.share_group("audit", topics="audits")
        async def audit(word: str) -> None: ...

        @app.consumer_group(
            "billing", topics="orders", exactly_once=True, retry=SOON, max_handling="1h"
        )
        async def fail_then_send_and_hang(word: str) -> None:
            runs.append(word)
            if len(runs) == 1:
                raise TimeoutError
            await audit.send(word)
            await asyncio.Event().wait()

        async with app.test(patience_seconds=0.2) as t:
            await t.send("orders", b"a")
            await t.advance("2s")
            assert len(runs) == 2
        failures = [story_of(copy.headers).failures for copy in t.in_topic("billing.retry")]
        return failures, [copy.value for copy in t.in_topic("audits")]

    assert asyncio.run(test()) == ([1], [])
