"""How a run ended, as it is decided, counted and told; `settling` then does what was decided.

returned                 accepted
decided by hand          as decided, whatever the handler did after that
raised                   as `decide` says
ended from outside       past its time: a failure; lock lost: nothing; worker stops: given back
"""

from __future__ import annotations

import random

from sharegroup.worker.decisions.decide import decide
from sharegroup.worker.decisions.messages import class_name
from sharegroup.worker.decisions.steps import GiveBack
from sharegroup.worker.payloads.unreadable import UnreadablePayload
from sharegroup.worker.records.outcomes import Reject, Release
from sharegroup.worker.running.in_hand import InHand
from sharegroup.worker.running.lane import HandlingTimeout, LockLost, Stopped
from sharegroup.worker.running.settling import Settling

NO_FAILURES = (Reject, Release, UnreadablePayload)


def end(
    settling: Settling,
    one: InHand,
    error: BaseException | None,
    now: float,
    seconds: float,
    *,
    may_hold: bool = True,
) -> None:
    """Its handler ended after so many seconds; ``may_hold`` False: it is in the handler still."""
    runner = one.runner
    decision = one.record.decision
    one.story = one.record.story  # Tracing notes there which span this run was.
    if isinstance(error, LockLost):
        settling.lost(runner, one, error)
        return
    if isinstance(error, Stopped):
        settling.carry_out(runner, one, GiveBack(), at_close=True)
        return
    if decision is not None:
        if error is not None:
            settling.tell("record.failed", runner, one, error, {"step": "decided by hand"})
        error = None if decision == "accept" else decision
    if error is None:
        runner.counts.succeeded += 1
        settling.accept(runner, one, seconds)
        return
    _count(settling, one, error)
    step = decide(
        runner.route,
        error,
        one.story,
        now_ms=settling.clock.wall_ms(),
        chance=random.random(),  # noqa: S311  Jitter.
        holding_allowed_seconds=settling.may_hold_seconds(runner, one, now) if may_hold else 0,
        member=settling.member_id,
    )
    if not isinstance(error, NO_FAILURES):
        settling.tell("record.failed", runner, one, error, {"step": type(step).__name__})
    settling.carry_out(runner, one, step)


def _count(settling: Settling, one: InHand, error: BaseException) -> None:
    runner, counts = one.runner, one.runner.counts
    match error:
        case Reject():
            counts.rejected += 1
            settling.tell("record.rejected", runner, one, error)
        case Release():
            pass  # Counted where it is given back.
        case UnreadablePayload():
            counts.unreadable += 1
            settling.tell("record.unreadable", runner, one, error)
        case _:
            counts.failed_with(class_name(error))
            if isinstance(error, HandlingTimeout):
                counts.timed_out += 1
                settling.tell("record.timed_out", runner, one, error)
