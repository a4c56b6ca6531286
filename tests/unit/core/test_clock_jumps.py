"""The time that decides what has expired, when the wall clock jumps."""

from __future__ import annotations

import pytest

from sharegroup.core.clock_jumps import JUMP_MS, PAUSE_MS, STOP_MS, ExpiryTime, Jump, Phase

WALL, YEAR = 1_700_000_000_000, 365 * 24 * 3_600_000


class Machine:
    """Two clocks that start together; each reading moves both."""

    def __init__(self, last_write_ms: int | None = None) -> None:
        self.now_ms, self.offset_ms = 5_000, WALL
        self.time = ExpiryTime(now_ms=5_000, wall_ms=WALL + 5_000, last_write_ms=last_write_ms)

    def read(self, after_ms: int, *, jump_ms: int = 0) -> tuple[int, Jump | None]:
        """The expiry time since the start, after some time and a jump."""
        self.now_ms += after_ms
        self.offset_ms += jump_ms
        found, jump = self.time.read(now_ms=self.now_ms, wall_ms=self.now_ms + self.offset_ms)
        return found - WALL - 5_000, jump


def test_without_a_jump_it_is_the_wall_clock() -> None:
    machine = Machine()
    assert machine.read(0) == (0, None)
    assert machine.read(1_000) == (1_000, None)
    assert machine.read(YEAR) == (YEAR + 1_000, None)


def test_corrections_below_the_limit_are_followed() -> None:
    machine = Machine()
    assert machine.read(0, jump_ms=JUMP_MS) == (JUMP_MS, None)
    assert machine.read(0, jump_ms=JUMP_MS) == (2 * JUMP_MS, None)
    assert machine.read(0, jump_ms=-JUMP_MS) == (JUMP_MS, None)


def test_short_jump_expires_nothing() -> None:
    machine = Machine()
    assert machine.read(1_000, jump_ms=YEAR) == (1_000, Jump(Phase.BEGAN, YEAR))
    assert machine.read(PAUSE_MS - 1) == (PAUSE_MS + 999, None)
    assert machine.read(0, jump_ms=-YEAR) == (PAUSE_MS + 999, Jump(Phase.OVER, 0))
    assert machine.read(1) == (PAUSE_MS + 1_000, None)


def test_jump_that_lasts_is_believed() -> None:
    machine = Machine()
    machine.read(0, jump_ms=YEAR)
    assert machine.read(PAUSE_MS) == (YEAR + PAUSE_MS, Jump(Phase.BELIEVED, YEAR))
    assert machine.read(1) == (YEAR + PAUSE_MS + 1, None)


def test_a_further_jump_ahead_begins_again() -> None:
    machine = Machine()
    machine.read(0, jump_ms=YEAR)
    found, jump = machine.read(PAUSE_MS - 1, jump_ms=YEAR)
    assert (found, jump) == (PAUSE_MS - 1, Jump(Phase.BEGAN, 2 * YEAR))
    assert machine.read(PAUSE_MS - 1, jump_ms=-YEAR) == (2 * PAUSE_MS - 2, None)
    assert machine.read(1) == (YEAR + 2 * PAUSE_MS - 1, Jump(Phase.BELIEVED, YEAR))


def test_jump_back_is_followed_at_once() -> None:
    machine = Machine()
    assert machine.read(1_000, jump_ms=-YEAR) == (1_000 - YEAR, None)
    assert machine.read(0, jump_ms=YEAR) == (1_000 - YEAR, Jump(Phase.BEGAN, YEAR))


@pytest.mark.parametrize("stopped_ms", [-YEAR, 0, STOP_MS - 5_000])
def test_start_after_a_short_stop_is_no_jump(stopped_ms: int) -> None:
    assert Machine(WALL + 5_000 - stopped_ms).read(1_000) == (1_000, None)


def test_start_after_a_long_stop_waits() -> None:
    machine = Machine(WALL + 5_000 - YEAR)
    assert machine.read(0) == (-YEAR, Jump(Phase.BEGAN, YEAR))
    assert machine.read(PAUSE_MS - 1) == (PAUSE_MS - 1 - YEAR, None)
    assert machine.read(1) == (PAUSE_MS, Jump(Phase.BELIEVED, YEAR))


def test_clock_that_is_wrong_at_the_start_expires_nothing() -> None:
    """A year ahead at boot, and right after the first answer of a time server."""
    machine = Machine(WALL + 5_000 - YEAR)
    machine.read(0)
    assert machine.read(30_000, jump_ms=-YEAR) == (30_000 - YEAR, Jump(Phase.OVER, 0))
