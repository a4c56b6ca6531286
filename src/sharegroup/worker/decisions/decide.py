"""What becomes of a record: the one place where that is decided.

`before_run` looks at a delivery before its handler is called, `decide` at how the handler ended.
Both are pure; the rules are the table «What becomes of a record» in docs/worker.md, row by row.
The number of a row stands beside its rule.

Two budgets are kept apart.  ``story.failures`` counts runs that failed, over all retries, and
`Retry.attempts` bounds it.  ``delivery_count`` is the broker's, and grows with each crash and each
release; the group's ``share.delivery.count.limit`` bounds that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.decisions.reasons import (
    ATTEMPTS_EXHAUSTED,
    DELIVERIES_EXHAUSTED,
    NOT_RETRIED,
    REJECTED,
    UNREADABLE,
)
from sharegroup.worker.decisions.steps import Accept, Bury, GiveBack, Hold, Postpone, Step
from sharegroup.worker.declared.retry import Retry
from sharegroup.worker.declared.route import Route
from sharegroup.worker.payloads.unreadable import UnreadablePayload
from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter
from sharegroup.worker.records.story import Attempt, Story

ATTEMPTS_KEPT = 20
"""The last failed runs that a story remembers; it counts all of them."""
MESSAGE_CHARACTERS_MAX = 500

ACCEPT = Accept()
GIVE_BACK = GiveBack()


def before_run(story: Story, *, delivery_count: int, delivery_limit: int) -> Bury | None:
    """None: run it.  ``delivery_limit`` is the group's."""
    if delivery_count >= delivery_limit:
        return Bury(story, DELIVERIES_EXHAUSTED)  # 13
    return None


def decide(
    route: Route,
    error: BaseException | None,
    story: Story,
    *,
    now_ms: int,
    chance: float,
    holding_allowed_seconds: float,
    member: str = "",
) -> Step:
    """What to do with a record whose handler raised ``error``, or returned.

    ``now_ms`` is the time since 1970, ``chance`` a number in [0, 1) for the jitter; a delay of at
    most ``holding_allowed_seconds`` may be waited for here, under the record's lock, and with 0
    none at all.
    """
    if error is None:
        return ACCEPT  # 1
    retry = route.retry
    error = decisive(error, retry)
    if isinstance(error, Release):
        return GIVE_BACK  # 3
    if isinstance(error, UnreadablePayload):
        return _unreadable(route, error, story)
    failed = _with_failure(story, error, now_ms=now_ms, member=member)
    if isinstance(error, Reject):
        return Bury(failed, REJECTED, error)  # 2
    if retry is None or not (isinstance(error, RetryAfter) or retry.applies_to(error)):
        return Bury(failed, NOT_RETRIED, error)  # 7, 8, 9
    if failed.failures >= retry.attempts:
        return Bury(failed, ATTEMPTS_EXHAUSTED, error)  # 6
    if isinstance(error, RetryAfter):
        delay = error.delay_seconds  # 4
    else:
        delay = retry.delay(failed.failures, chance)  # 5
    waiting = replace(failed, due_ms=now_ms + round(delay * 1000))
    if holding_allowed_seconds > 0 and delay <= holding_allowed_seconds:
        return Hold(waiting)
    return Postpone(waiting)


def decisive(error: BaseException, retry: Retry | None) -> BaseException:
    """Of a group of exceptions, as a TaskGroup raises, the one that decides: the gravest.

    A Reject, else a failure that is not tried again, else one that is, else a RetryAfter (the
    longest), else a Release; the first of equals.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    return min(_leaves(error), key=lambda one: _gravity(one, retry))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


def _gravity(error: BaseException, retry: Retry | None) -> tuple[int, float]:
    match error:
        case Reject():
            return (0, 0.0)
        case RetryAfter():
            return (3, -error.delay_seconds)
        case Release():
            return (4, 0.0)
        case _ if retry is None or not retry.applies_to(error):
            return (1, 0.0)
        case _:
            return (2, 0.0)


def _unreadable(route: Route, error: UnreadablePayload, story: Story) -> Step:
    """No run, so no failed run: the bytes will not be others next time."""
    match route.unreadable:
        case "dead_letter":
            return Bury(story, UNREADABLE, error)  # 10
        case "reject":
            return Bury(story, UNREADABLE, error, is_kept=False)  # 11
        case "release":
            return GIVE_BACK  # 12


def _with_failure(story: Story, error: BaseException, *, now_ms: int, member: str) -> Story:
    attempt = Attempt(
        number=story.failures + 1,
        at_ms=now_ms,
        error=class_name(error),
        message=message_of(error, MESSAGE_CHARACTERS_MAX),
        member=member,
    )
    attempts = (*story.attempts, attempt)[-ATTEMPTS_KEPT:]
    return replace(story, failures=attempt.number, attempts=attempts, due_ms=None)
