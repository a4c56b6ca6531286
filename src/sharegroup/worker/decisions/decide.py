"""Decides the outcome of each record; the only place where this is decided.

`may_run`, `put_aside` and `expired` decide before the handler is called, `decide` after it has
ended.  All are pure.  The rules are the rows of the table «Outcomes of a record» in
docs/worker.md; a comment at each rule has the number of its row.

There are two separate limits.  ``story.failures`` counts failed runs over all retries; its limit
is `Retry.max_attempts`.  ``delivery_count`` is counted by the broker and grows with each crash and
each release; its limit is the group's ``share.delivery.count.limit``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Attempt, Story
from sharegroup.protocol_enums import DELAY_MS_MAX
from sharegroup.worker.decisions.messages import class_name, leaves_of, message_of
from sharegroup.worker.declarations.policies import Expiry
from sharegroup.worker.declarations.retry import Retry, RetryByError
from sharegroup.worker.declarations.route import OnUnreadable, Route
from sharegroup.worker.payloads.codec import UnreadablePayload
from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter

# The steps that end a handler run: `decide` chooses one, and `running.settlement` carries it out.
#
#     Accept       the record is accepted
#     Redeliver    the record is released, and so delivered again to any member
#     Hold         the record stays locked here and runs again; its slot is free meanwhile
#     Postpone     the record is written to a retry topic, and accepted when that is acknowledged
#     Bury         the record is written to the dead letters, and rejected when that is acknowledged


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept the record."""


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Release the record, so that it is delivered again after ``delay_ms``; None: the group's."""

    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the record under its lock, and run it again in this process at ``story.due_ms``."""

    story: Story


@dataclass(frozen=True, slots=True)
class Postpone:
    """Write the record to a retry topic; any worker runs it again at ``story.due_ms``."""

    story: Story


@dataclass(frozen=True, slots=True)
class Bury:
    """Reject the record and, if ``is_kept``, write it to the dead letters; it never runs again."""

    story: Story
    reason: DeadLetterReason
    error: BaseException | None = None
    is_kept: bool = True
    """False if it is rejected without a dead letter, even if the route has a dead-letter topic.

    Used for ``unreadable="reject"``.
    """


Step = Accept | Redeliver | Hold | Postpone | Bury


ATTEMPTS_KEPT = 20
"""The number of failed runs that a story keeps, the latest ones; it counts all of them."""
MESSAGE_CHARACTERS_MAX = 500
CRASHES_ALONE_MAX = 2
"""The number of deliveries of a suspect that may end without an outcome, as after a crash."""
ASIDE_MS = 100
"""Pause until a suspect that stays in its place asks again for its turn to run alone."""

ACCEPT = Accept()
REDELIVER = Redeliver()


def may_run(
    story: Story, *, delivery_count: int, suspected_from: int, in_place: bool = False
) -> bool:
    """Whether a record may run; if not, it is put aside.

    ``suspected_from`` is the delivery count from which the group's records are suspected to end
    their processes.  With ``in_place`` they are not moved, so as many more deliveries are allowed.
    """
    if in_place and story.suspicions == 0:
        return delivery_count < suspected_from + CRASHES_ALONE_MAX
    if story.suspicions == 0:
        return delivery_count < suspected_from
    return not _is_exhausted(story, delivery_count, suspected_from)


def stay(
    story: Story, *, delivery_count: int, suspected_from: int, now_ms: int, by_stop: bool
) -> Hold | Redeliver | Bury:
    """Decide about a record as `put_aside` does, if its group handles records in their order.

    It stays in its place, because records of its key must not overtake it.  There a release costs
    no delivery, and it asks for its turn again and again.
    """
    if not may_run(
        story, delivery_count=delivery_count, suspected_from=suspected_from, in_place=True
    ):
        return Bury(story, DeadLetterReason.DELIVERIES_EXHAUSTED)  # 13
    return REDELIVER if by_stop else Hold(replace(story, due_ms=now_ms + ASIDE_MS))


def put_aside(
    story: Story, *, delivery_count: int, suspected_from: int, now_ms: int, by_stop: bool = False
) -> Postpone | Bury:
    """Decide about a record that must not be delivered here again.

    It moves to the group's own topic, and is delivered there as a record that was not delivered
    before.  It is a suspect there, unless a stop is the reason and its delivery count is lower
    than ``suspected_from``.  A suspect that has ended its process too often becomes a dead letter.
    """
    if _is_exhausted(story, delivery_count, suspected_from):
        return Bury(story, DeadLetterReason.DELIVERIES_EXHAUSTED)  # 13
    story = moved(story, delivery_count=delivery_count)
    if story.suspicions == 0 and not (by_stop and delivery_count < suspected_from):
        story = replace(story, suspicions=1)
    return Postpone(replace(story, due_ms=now_ms))  # 24


def expired(story: Story, expiry: Expiry) -> Bury | Accept:
    """Decide about a record that has expired before its handler was called."""
    return Bury(story, DeadLetterReason.EXPIRED) if expiry.dead_letter else ACCEPT  # 27


def moved(story: Story, *, delivery_count: int) -> Story:
    """Return the story for another topic, where the delivery count of a suspect starts again."""
    if story.suspicions == 0:
        return story
    suspicions = min(story.suspicions + delivery_count - 1, CRASHES_ALONE_MAX)
    return replace(story, suspicions=suspicions)


def _is_exhausted(story: Story, delivery_count: int, suspected_from: int) -> bool:
    """Whether a suspect has ended its process as often as it may.

    Each suspect may run once after it was moved, whatever number its header claims.
    """
    crashes_max = min(CRASHES_ALONE_MAX, suspected_from - 1)
    crashes = story.suspicions - 1 + delivery_count - 1
    return story.suspicions > 0 and delivery_count > 1 and crashes >= crashes_max


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
    """Decide the step for a record whose handler raised ``error``; None if it returned.

    ``now_ms`` is the time since 1970; ``chance`` is a number in [0, 1) for the jitter.  A record is
    held, under its lock, for a delay of at most ``holding_allowed_seconds``; 0 forbids holding.
    """
    if error is None:
        return ACCEPT  # 1
    retry = route.retry
    error = decisive(error, retry)
    if isinstance(error, Release):
        return _released(error)  # 3
    if isinstance(error, UnreadablePayload):
        return _unreadable(route, error, story)
    failed = _with_failure(story, error, route, now_ms=now_ms, member=member)
    if isinstance(error, Reject):
        return Bury(failed, DeadLetterReason.REJECTED, error)  # 2
    policy = None if retry is None else retry.policy_for(error)
    if policy is None:
        return Bury(failed, DeadLetterReason.NOT_RETRIED, error)  # 7, 8, 9
    if failed.failures >= policy.max_attempts:
        return Bury(failed, DeadLetterReason.ATTEMPTS_EXHAUSTED, error)  # 6
    if isinstance(error, RetryAfter):
        delay = error.delay_seconds  # 4
    else:
        delay = policy.delay(failed.failures, chance)  # 5
    waiting = replace(failed, due_ms=now_ms + round(delay * 1000))
    if holding_allowed_seconds > 0 and delay <= holding_allowed_seconds:
        return Hold(waiting)
    return Postpone(waiting)


def decisive(error: BaseException, retry: Retry | RetryByError | None) -> BaseException:
    """Return the exception that decides; of a group, as a TaskGroup raises, the gravest.

    The order of precedence is: a Reject, a failure that is not retried, a failure that is retried,
    the RetryAfter with the longest delay, the Release with the longest one.  Among equals the first
    one decides.  Of a group with very many exceptions, only the first ones are looked at.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    # `min` returns the first of equals, as the docstring promises.
    return min(leaves_of(error), key=lambda leaf: _gravity(leaf, retry))


def _gravity(error: BaseException, retry: Retry | RetryByError | None) -> tuple[int, float]:
    match error:
        case Reject():
            return (0, 0.0)
        case RetryAfter():
            return (3, -error.delay_seconds)
        case Release():
            return (4, -(error.delay_seconds or 0.0))
        case _ if retry is None or not retry.applies_to(error):
            return (1, 0.0)
        case _:
            return (2, 0.0)


def _released(error: Release) -> Redeliver:
    """Decide about a record that the handler releases.

    A delayed release costs the broker and its worker less than a retry topic, but a released record
    keeps no failure: so a failure never becomes one (docs/adr/0061).
    """
    if error.delay_seconds is None:
        return REDELIVER
    return Redeliver(min(max(round(error.delay_seconds * 1000), 0), DELAY_MS_MAX))


def _unreadable(route: Route, error: UnreadablePayload, story: Story) -> Step:
    """Decide about a payload that cannot be decoded.

    It is neither retried nor counted as a failed run, because the bytes will not change.
    """
    match route.unreadable:
        case OnUnreadable.DEAD_LETTER:
            return Bury(story, DeadLetterReason.UNREADABLE, error)  # 10
        case OnUnreadable.REJECT:
            return Bury(story, DeadLetterReason.UNREADABLE, error, is_kept=False)  # 11
        case OnUnreadable.RELEASE:
            return REDELIVER  # 12


def _with_failure(
    story: Story, error: BaseException, route: Route, *, now_ms: int, member: str
) -> Story:
    attempt = Attempt(
        number=story.failures + 1,
        at_ms=now_ms,
        error=class_name(error),
        message=message_of(error, MESSAGE_CHARACTERS_MAX, route.redaction),
        member=member,
    )
    attempts = (*story.attempts, attempt)[-ATTEMPTS_KEPT:]
    return replace(
        story, failures=attempt.number, attempts=attempts, due_ms=None, suspicions=0
    )  # Its run has ended, and its process has not.
