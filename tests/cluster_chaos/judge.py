"""Is every promise kept?  Journals of all processes against each other, and against the faults.

    lost        a confirmed record that no member was given
    unfinished  one that was given to members, and accepted by none of them
    returned    a delivery after a confirmed accept, which no stale leader explains
    doubled     a number at two places: our idempotent producer wrote it twice
    unreported  a delivery of which nobody said what became of it, in a process that lives
    idle        a member that is given nothing for a minute after the last fault

A record may be delivered more than once.  Each earlier delivery must then say why, with one of
`REASONS`: the outcome that the client reported, or that its process died.

One thing is forgiven that looks like a record that returned: a leader that was replaced and does
not know it yet still hands out what its successor's members have accepted meanwhile.  Its locks
count for nothing, and no accept of such a delivery is ever confirmed.  It is forgiven only while a
fault separates or freezes nodes, or until its successor could be told (`STALE_SECONDS`), or when
the delivery had been fetched before the accept was confirmed and a fault lies in between.

Two confirmed accepts of a record are counted (`LATE`) and no problem of their own: Kafka answers
an accept of what lies below the start offset without an error, also to a member whose lock has
ended (`SharePartition.acknowledge`: «already archived»).  The second one must have been handed out
before the first one was confirmed; otherwise the record returned.

A broker that recognises a batch that was sent again confirms it without an offset (ours says -1,
confluent None).  Such a record counts as seen wherever its partition has it.

Numbers that confluent's producer wrote twice are counted and forgiven: it is not ours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.cluster_chaos.plan import DIVIDING, Kind
from tests.faults.worker_chaos.journal import Line
from tests.faults.worker_chaos.records import CRUNCH
from tests.faults.worker_chaos.stage import Death

IDLE_SECONDS_MAX = 60.0
STALE_SECONDS = 15.0
"""After a separation ends, until every client has heard of the new leaders."""
AFTERMATH_SECONDS = 20.0
"""Locks (10 s) and sessions (6 s) that a fault leaves behind are over."""
NAMED_MAX = 10
DIED = "process died"
RELEASED = "released by the application"
CLOSED = "given back when its member closed"
SUPERSEDED = "delivered again to the same member"
STALE = "stale leader"
LATE = "accepted again after its lock had ended"
REASONS = frozenset(
    {
        DIED,
        RELEASED,
        CLOSED,
        SUPERSEDED,
        "InvalidRecordState",
        "NotLeaderOrFollower",
        "FencedLeaderEpoch",
        "FencedStateEpoch",
        "UnknownTopicOrPartition",
        "UnknownTopicId",
        "ShareSessionNotFound",
        "InvalidShareSessionEpoch",
        "NetworkException",
        "NoAnswer",
        "RequestTimedOut",
        "CoordinatorNotAvailable",
        "CoordinatorLoadInProgress",
        "NotCoordinator",
        "NotEnoughReplicas",
        "NotEnoughReplicasAfterAppend",
        "UnknownServerError",
        "LeaderNotAvailable",
        "BrokerNotAvailable",
    }
)
"""What may have become of a delivery whose record is delivered again."""
MAYBE_ACCEPTED = frozenset({"NetworkException", "NoAnswer", DIED})
"""The settlement may have been carried out although nobody was told so."""

Place = tuple[str, int, int]
UNKNOWN_OFFSET = -1


class Window(NamedTuple):
    """A fault, on the monotonic clock."""

    kind: Kind
    begin: float
    end: float


class Delivery(NamedTuple):
    """A record was handed out."""

    number: int
    place: Place
    member: str
    pid: int
    at: float
    fetched_at: float
    count: int
    outcome: str
    """``accepted``, or one of the reasons; empty: nobody said."""
    outcome_at: float


@dataclass(slots=True)
class Account:
    """What became of the records of one topic."""

    sent: int = 0
    confirmed: int = 0
    refused: int = 0
    seen: int = 0
    """Confirmed records that were delivered at least once."""
    lost: list[int] = field(default_factory=list)
    exhausted: list[int] = field(default_factory=list)
    """Delivered as often as the group permits, and accepted by nobody."""
    deliveries: int = 0
    doubles: Counter[str] = field(default_factory=Counter)
    """Deliveries that were followed by another one of the same record, by reason."""
    failures: Counter[str] = field(default_factory=Counter)
    """Deliveries whose settlement was reported as failed, by error."""
    written_twice: int = 0
    """Numbers at two places whose producer is not ours."""
    problems: list[str] = field(default_factory=list)

    def problem(self, kind: str, text: str) -> None:
        """One more; of each kind only the first ones are kept in full."""
        if sum(known.startswith(kind) for known in self.problems) < NAMED_MAX:
            self.problems.append(f"{kind}: {text}")


class Produced(NamedTuple):
    """What the producers said about one topic."""

    sent: frozenset[int]
    confirmed: Mapping[int, Place]
    refused: Mapping[int, str]


def produced(lines: Iterable[Line], topic: str) -> Produced:
    """From the journals of the producers."""
    sent, confirmed, refused = set(), {}, {}
    for line in lines:
        if line.place[0] != topic:
            continue
        if line.what == "sent":
            sent.add(line.number)
        elif line.what == "confirmed":
            name, partition, offset = line.place
            confirmed[line.number] = (name, partition, UNKNOWN_OFFSET if offset is None else offset)
        elif line.what == "refused":
            refused[line.number] = line.error
    return Produced(frozenset(sent), confirmed, refused)


def with_offset(confirmed: Place, found: Iterable[Place]) -> Place:
    """The place that a record was confirmed at; if it has no offset, the one where it was found."""
    if confirmed[2] != UNKNOWN_OFFSET:
        return confirmed
    return next((place for place in found if place[:2] == confirmed[:2]), confirmed)


def deliveries(member: str, lines: Sequence[Line], dead: Collection[int]) -> list[Delivery]:
    """All deliveries of a member, each with what was said to have become of it."""
    waiting: dict[tuple[int, Place], list[Line]] = defaultdict(list)
    closed = {line.pid: line.at for line in lines if line.what == "closed"}
    found: list[Delivery] = []

    def end(line: Line, outcome: str, at: float) -> None:
        found.append(
            Delivery(
                line.number, line.place, member, line.pid, line.at, line.fetched_at,
                line.delivery_count, outcome, at,
            )
        )  # fmt: skip

    for line in lines:
        before = waiting[line.pid, line.place]
        if line.what == "got":
            before.append(line)
        elif line.what == "failed" and before:
            end(before.pop(0), line.error, line.at)  # Of two deliveries the first one's lock ended.
        elif line.what in {"accepted", "released"} and before:
            end(before.pop(), "accepted" if line.what == "accepted" else RELEASED, line.at)
            for earlier in before:
                end(earlier, SUPERSEDED, line.at)
            before.clear()
    for (pid, _), left in waiting.items():
        for earlier, later in pairwise(left):
            end(earlier, SUPERSEDED, later.at)
        for line in left[-1:]:
            unsettled = CLOSED if pid in closed else ""
            end(line, DIED if pid in dead else unsettled, closed.get(pid, line.at))
    return sorted(found, key=_by_time)


def judge_group(
    wanted: Produced,
    members: Mapping[str, Sequence[Line]],
    deaths: Sequence[Death],
    windows: Sequence[Window],
    *,
    deliveries_max: int,
    is_ours: Callable[[int], bool] = lambda number: True,
) -> Account:
    """The account of plain consumers; journal lines by member.

    ``is_ours``: whether our producer sent a number.
    """
    account = Account(len(wanted.sent), len(wanted.confirmed), len(wanted.refused))
    dead = {death.pid for death in deaths}
    by_place: dict[Place, list[Delivery]] = defaultdict(list)
    places: dict[int, set[Place]] = defaultdict(set)
    for member, lines in members.items():
        for delivery in deliveries(member, lines, dead):
            by_place[delivery.place].append(delivery)
            places[delivery.number].add(delivery.place)
            account.deliveries += 1
            if delivery.outcome not in {"accepted", RELEASED, DIED}:
                account.failures[delivery.outcome or "unreported"] += 1
    for number, found in places.items():
        if len(found) > 1 and not is_ours(number):
            account.written_twice += 1
        elif len(found) > 1:
            account.problem("doubled", f"{number} lies at {sorted(found)}")
        if number not in wanted.sent:
            account.problem("strange", f"{number} was never sent")
    _judge_confirmed(account, wanted, by_place, places)
    for place, found in by_place.items():
        _judge_place(account, place, sorted(found, key=_by_time), windows, deliveries_max)
    return account


def _judge_confirmed(
    account: Account,
    wanted: Produced,
    by_place: Mapping[Place, Sequence[Delivery]],
    places: Mapping[int, Collection[Place]],
) -> None:
    """Records that were promised: each was seen where it was confirmed."""
    for number, confirmed in wanted.confirmed.items():
        place = with_offset(confirmed, places.get(number, ()))
        found = by_place.get(place, ())
        if not found:
            account.lost.append(number)
            account.problem("lost", f"{number} at {place}: nobody was given it")
            continue
        account.seen += 1
        if number not in {delivery.number for delivery in found}:
            account.problem("strange", f"{place} should be {number}: {found}")


def _by_time(delivery: Delivery) -> float:
    return delivery.at


def _judge_place(
    account: Account,
    place: Place,
    found: Sequence[Delivery],
    windows: Sequence[Window],
    deliveries_max: int,
) -> None:
    """All deliveries of one record, in their order."""
    accepted = [delivery for delivery in found if delivery.outcome == "accepted"]
    outcomes = {delivery.outcome for delivery in found}
    account.doubles[LATE] += max(0, len(accepted) - 1)
    if not accepted and any(delivery.count >= deliveries_max for delivery in found):
        account.exhausted.append(found[0].number)
    elif not accepted and not outcomes & MAYBE_ACCEPTED:
        account.problem("unfinished", f"{place} was accepted by nobody: {found}")
    if "" in outcomes:
        account.problem("unreported", f"{place}: {found}")
    for delivery in found[:-1]:
        if delivery.outcome != "accepted":
            account.doubles[delivery.outcome] += 1
            if delivery.outcome not in REASONS:
                account.problem("unexplained", f"{place}: {found}")
    _judge_returns(account, place, found, windows)


def _judge_returns(
    account: Account, place: Place, found: Sequence[Delivery], windows: Sequence[Window]
) -> None:
    """Deliveries after a confirmed accept."""
    for after in found:
        before = [
            delivery
            for delivery in found
            if delivery is not after
            and delivery.outcome == "accepted"
            and delivery.outcome_at < after.at
        ]
        if before and _is_stale(before[0], after, windows):
            account.doubles[STALE] += 1
        elif before:
            account.problem("returned", f"{place} after a confirmed accept: {found}")


def _is_stale(accepted: Delivery, after: Delivery, windows: Sequence[Window]) -> bool:
    """Whether a leader that was replaced, or a fetch from before it was, explains a delivery."""
    if after.outcome == "accepted":
        return False
    if after.fetched_at <= accepted.outcome_at:
        return any(
            window.begin <= after.at and after.fetched_at <= window.end + AFTERMATH_SECONDS
            for window in windows
        )
    return any(
        window.kind in DIVIDING and window.begin <= after.at <= window.end + STALE_SECONDS
        for window in windows
    )


def judge_reruns(
    lines: Sequence[Line], deaths: Sequence[Death], failed: str
) -> tuple[Counter[str], list[str]]:
    """Why handlers ran again for copies that they had finished, and runs without a reason.

    ``failed`` is the name of the line that says which acknowledgements failed.
    """
    by_place: dict[Place, list[Line]] = defaultdict(list)
    refused: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        if line.what == failed:
            refused[line.place[:2]].append(line)
        elif line.what in {"begin", "return", "record.lock_lost", "record.released"}:
            by_place[line.place].append(line)
    reasons: Counter[str] = Counter()
    problems: list[str] = []
    for place, story in by_place.items():
        for index, first in enumerate(story):
            again = [line for line in story[index + 1 :] if line.what == "begin"]
            if first.what != "return" or not again:
                continue
            reason = _why_again(first, again[0], story, refused[place[:2]], deaths)
            reasons[reason or "unexplained"] += 1
            if not reason:
                problems.append(f"{place} ran again without a reason: {story}")
    return reasons, problems[:NAMED_MAX]


def _why_again(
    first: Line,
    again: Line,
    story: Sequence[Line],
    refused: Sequence[Line],
    deaths: Sequence[Death],
) -> str:
    """Empty if nothing explains it."""
    for line in refused:
        if line.at >= first.at and line.place[2] <= first.place[2]:
            return line.error
    if any(line.what in {"record.lock_lost", "record.released"} for line in story):
        return "lock lost"
    for death in deaths:
        # A process with handlers of its own (`crunch`) may have been replaced since.
        by_name = death.pid == first.pid or first.place[0] == CRUNCH
        if by_name and first.at <= death.seen and death.at <= again.at:
            return DIED
    return ""


def judge_letters(
    letters: Mapping[int, int],
    lines: Sequence[Line],
    deaths: Sequence[Death],
    numbers: Mapping[Place, int],
) -> tuple[Counter[str], list[str]]:
    """Why records have several dead letters, and letters of which no worker tells.

    ``letters`` counts them by number.  ``numbers`` has the numbers of all copies in the topics: of
    a record that no handler was called for, a worker tells the place alone.  A worker writes a
    letter for each delivery that ends so, and says so when it is acknowledged; it may die, or lose
    the lock, in between.
    """
    by_number: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        number = numbers.get(line.place, -1) if line.number < 0 else line.number
        by_number[number].append(line)
    dead = {death.pid for death in deaths}
    reasons: Counter[str] = Counter()
    problems: list[str] = []
    for number, count in letters.items():
        story = by_number[number]
        told = sum(line.what == "record.dead_lettered" for line in story)
        if count <= told:
            reasons["delivered again"] += count - 1
        elif any(line.pid in dead for line in story):
            reasons[DIED] += count - 1
        elif any(line.what == "record.lock_lost" for line in story):
            reasons["lock lost"] += count - 1
        else:
            problems.append(f"{number} has {count} dead letters, {told} were told: {story}")
    return +reasons, problems[:NAMED_MAX]


def longest_pause(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time in which nothing happened."""
    inside = [at for at in times if begin < at < end]
    return max(after - before for before, after in pairwise([begin, *inside, end]))


def judge_idle(streams: Mapping[str, Sequence[float]], begin: float, end: float) -> list[str]:
    """Members that were given nothing for a minute between ``begin`` and ``end``."""
    assert end - begin > IDLE_SECONDS_MAX, (begin, end)
    found = []
    for member, times in streams.items():
        pause = longest_pause(times, begin, end)
        if pause > IDLE_SECONDS_MAX:
            found.append(f"idle: {member} was given nothing for {pause:.0f} s after the last fault")
    return found


def recovery_seconds(streams: Mapping[str, Sequence[float]], undone: float) -> dict[str, float]:
    """How long after a fault was undone each stream had its first record; -1: never."""
    return {
        name: min((at - undone for at in times if at >= undone), default=-1.0)
        for name, times in streams.items()
    }
