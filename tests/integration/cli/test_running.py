"""How signals end a long verb, and with which exit code."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from click.exceptions import Exit

from sharegroup.cli.common.running import Stop, run
from sharegroup.stop_signals import STOP_SIGNALS

pytestmark = pytest.mark.usefixtures("heeds_hangups")

CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def test_all_signals_have_their_code() -> None:
    assert {number for number, _ in CODES} == set(STOP_SIGNALS)


def test_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work(stop: Stop) -> bool:
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.05)
        return True

    try:
        assert run(work)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), CODES)
def test_verb_that_ends_after_a_signal_knows_its_code(number: signal.Signals, code: int) -> None:
    async def work(stop: Stop) -> int:
        os.kill(os.getpid(), number)
        await stop.wait()
        return stop.code

    assert run(work) == code


@pytest.mark.parametrize(("number", "code"), CODES)
def test_verb_that_is_cancelled_ends_with_the_code_of_its_signal(
    number: signal.Signals, code: int
) -> None:
    """By a second signal, here of the same kind."""

    async def work(stop: Stop) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    with pytest.raises(Exit) as ended:
        run(work)
    assert ended.value.exit_code == code


def test_verb_that_does_not_end_in_time_ends_with_the_code_of_its_signal() -> None:
    async def work(stop: Stop) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    with pytest.raises(Exit) as ended:
        run(work)
    assert ended.value.exit_code == 143


def test_verb_without_a_signal_returns_its_result() -> None:
    async def work(stop: Stop) -> int:
        stop.set()  # By the verb itself.
        return stop.code

    assert run(work) == 0
