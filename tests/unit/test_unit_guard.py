"""The guard of `tests/unit` counts what the running test does, and nothing else."""

from __future__ import annotations

import threading

import pytest

from tests.support.limits import HANGING_SECONDS
from tests.unit.conftest import NotUnit, Watch


def test_waiting_of_the_test_is_counted() -> None:
    watch = Watch()
    watch.start()
    assert watch.problem() is None
    watch.waited(0.3)
    assert "waited for 0.30 s" in (watch.problem() or "")
    watch.start()
    assert watch.problem() is None, "each test begins anew"


def test_forbidden_call_raises_and_is_reported_although_it_was_caught() -> None:
    watch = Watch()
    watch.start()
    with pytest.raises(NotUnit, match=r"opens a connection.*tests/integration"):
        watch.audit("socket.connect", ())
    assert "opens a connection" in (watch.problem() or "")


def test_threads_of_other_tests_are_not_watched() -> None:
    watch = Watch()
    begin = threading.Event()

    def work() -> None:
        begin.wait(HANGING_SECONDS)
        watch.waited(5)
        watch.audit("socket.connect", ())

    left_behind = threading.Thread(target=work)
    left_behind.start()
    watch.start()
    begin.set()
    left_behind.join()
    assert watch.problem() is None


def test_threads_that_the_test_starts_are_watched() -> None:
    watch = Watch()
    watch.start()
    thread = threading.Thread(target=watch.waited, args=(5,))
    thread.start()
    thread.join()
    assert "waited for 5.00 s" in (watch.problem() or "")
