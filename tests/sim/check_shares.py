"""What must hold of share groups (S1 to S9, S11, S13 to S16), by what the broker has written.

    S1   a record has one owner at a time, and only its owner settles it, while its lock lasts
    S2   what was confirmed as accepted or rejected is never delivered again
    S4   1 <= delivery count <= limit; it rises with every delivery, and a confirmed release
         keeps it through any restart
    S5   the start offset never goes back, and passes nothing that is not settled
    S6   no more records are locked than the group allows
    S7   the lag counts all that is not settled
    S9   session, member and state epochs go up; an old one is refused
    S11  every group is checked by itself, so what one does to another one shows as S1 to S7
    S13  in a group that is ordered by key, a record is delivered only if all records of its key
         before it are settled (checked in `check_requests`, which knows the log)

    S14  a listed run lies behind the one before, and what was confirmed as settled is listed as
         settled; an acquired run has a member, and no other has one
    S15  a group that is paused is given nothing: no request gets records that arrived after the
         pause was confirmed, until somebody may have ended it (checked in `check_requests`)
    S16  a record that its owner released with a delay is not delivered before the delay is over

S3 (never lost) is checked at the end (`world`): all that is not settled is delivered again.
S8 compares share partitions before and after a restart (`machine`), S10 is in `check_letters`;
S12 (access control) has checks when the broker has any.

The checks are exact where the broker's order is known and lenient where it is not: a request
that waits for the disk was decided somewhere between its arrival and its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.sim.messages import ACCEPT, GAP, REJECT, RELEASE, RENEW, Partition
from tests.sim.network import Connection

Report = Callable[[str], None]

EITHER = "either of two incarnations"

ACQUIRED, OVER = 1, (2, 3, 4)
"""States of listed runs: acquired, and those of settled records (3 waits for its letter)."""

SETTLING = frozenset({GAP, ACCEPT, REJECT})
"""Acknowledge types after which a record is never delivered again."""


@dataclass(slots=True, eq=False)
class Hold:
    """A member was given a record and has not let go of it, as far as is known."""

    member_id: str
    incarnation: object
    acquired_by_us: int
    """It was locked at this moment or before..."""
    until_us: int
    """...and stays so until this moment at least."""
    ends_us: int
    """After this moment the lock is over for sure."""
    count: int
    ending: bool = False
    """Its member has said something that ends the lock, and was not answered yet."""


@dataclass(slots=True)
class ShareView:
    """One share partition as far as anybody was told of it."""

    held: dict[int, Hold] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    """Confirmed accepts and rejects: when."""
    settling: set[int] = field(default_factory=set)
    """An accept or a reject arrived, whatever became of it."""
    counts: dict[int, int] = field(default_factory=dict)
    """The highest delivery count seen."""
    kept_counts: dict[int, int] = field(default_factory=dict)
    """Delivery counts of confirmed releases."""
    last: dict[int, tuple[object, int]] = field(default_factory=dict)
    """Incarnation and count of the last delivery."""
    unseen: int = 0
    """Fetches that were cut off before their answer: they may have delivered something."""
    delayed: dict[int, int] = field(default_factory=dict)
    """Confirmed releases with a delay: it is over at this moment at the earliest."""
    accepted: set[int] = field(default_factory=set)
    """Confirmed, by who surely had it."""
    failed: set[int] = field(default_factory=set)
    """Rejected, or given back after the last delivery; confirmed, by who surely had it."""
    start_offset: int | None = None
    """None: not described yet."""
    state_epoch: int = 0
    was_reset: bool = False
    """There was another story of these offsets before."""
    is_unsure: int = 0
    """Offsets are being altered or deleted."""


@dataclass(slots=True)
class Ack:
    """One offset of an acknowledgement, and what was known of it when it arrived."""

    view: ShareView
    offset: int
    ack_type: int
    delay_ms: int
    hold: Hold | None
    incarnation: object
    may_be_over: bool
    """The record may have been settled already; then the broker says yes to everybody."""


@dataclass(slots=True)
class GroupView:
    """The least and the most that the group's settings ever were."""

    lock_ms: tuple[int, int]
    deliveries: tuple[int, int]
    locks_max: int
    """With the log batch that may be completed above it."""
    sessions: dict[str, SessionView] = field(default_factory=dict)
    member_epochs: dict[str, int] = field(default_factory=dict)
    paused_us: int | None = None
    """When a pause was confirmed; None: it was not, or somebody may have ended it."""


@dataclass(slots=True)
class SessionView:
    """A share session: the connection it lives on, and the epoch that must come next."""

    connection: Connection
    expected_epoch: int
    partitions: set[Partition] = field(default_factory=set)


class ShareChecks:
    """See the module's text."""

    def __init__(
        self,
        report: Report,
        incarnation: Callable[[str, Partition], object],
        *,
        from_earliest: bool,
    ) -> None:
        self._report = report
        self._from_earliest = from_earliest
        self._incarnation = incarnation
        self.views: dict[tuple[str, Partition], ShareView] = {}

    def view(self, group: str, partition: Partition) -> ShareView:
        return self.views.setdefault((group, partition), ShareView())

    def forget(self, group: str, partition: Partition) -> None:
        """Somebody reset it: what was settled may come again."""
        self.views[group, partition] = ShareView(was_reset=True)

    # What may be over: settled, perhaps settled, or delivered as often as is allowed.

    def may_be_over(self, view: ShareView, limits: GroupView, offset: int) -> bool:
        seen = view.counts.get(offset, 0)
        return offset in view.settling or seen + view.unseen >= limits.deliveries[0]

    # Deliveries

    def delivered(
        self,
        group: str,
        partition: Partition,
        member_id: str,
        limits: GroupView,
        *,
        offset: int,
        count: int,
        arrived_us: int,
        now_us: int,
        acquired_in: object,
        log_start: int,
    ) -> None:
        """The answer to a ShareFetch that gives this record to a member is written.

        ``acquired_in`` is the incarnation that had the request.  Where there is another one by now
        nobody knows which of them has the lock.
        """
        view, named = self.view(group, partition), f"{group} {partition}-{offset}"
        incarnation = self._incarnation(group, partition)
        self._check_state_epoch(view, named, incarnation)
        if incarnation is not acquired_in:
            incarnation = EITHER
        else:
            self._check_owner(view, named, member_id, offset, incarnation, now_us)
            self._check_count(view, named, limits, offset, count, incarnation)
        late_us = now_us - arrived_us
        if offset in view.settled and not view.is_unsure and late_us < limits.lock_ms[0] * 1000:
            self._report(f"S2: {named} was settled at {view.settled[offset]} us and comes again")
        delayed_to_us = view.delayed.pop(offset, 0)
        if now_us < delayed_to_us and not view.is_unsure:
            self._report(f"S16: {named} comes at {now_us} us, delayed to {delayed_to_us} us")
        view.counts[offset] = max(count, view.counts.get(offset, 0))
        view.last[offset] = (incarnation, count)
        view.held[offset] = Hold(
            member_id,
            incarnation,
            acquired_by_us=now_us,
            until_us=_whole_ms(arrived_us) + limits.lock_ms[0] * 1000,
            ends_us=now_us + limits.lock_ms[1] * 1000 + 1000,
            count=count,
        )
        held = self._held_for_sure(view, incarnation, now_us)
        locked = sum(1 for offset in held if offset >= log_start)
        if locked > limits.locks_max:
            self._report(f"S6: {group} {partition}: {locked} records are locked")

    def _check_state_epoch(self, view: ShareView, named: str, incarnation: object) -> None:
        epoch = getattr(incarnation, "state_epoch", view.state_epoch)
        if epoch < view.state_epoch and not view.is_unsure:
            self._report(f"S9: {named} state epoch went from {view.state_epoch} to {epoch}")
        view.state_epoch = epoch

    def _check_owner(
        self,
        view: ShareView,
        named: str,
        member_id: str,
        offset: int,
        incarnation: object,
        now_us: int,
    ) -> None:
        hold = view.held.get(offset)
        if hold is None or hold.ending or hold.incarnation is not incarnation:
            return
        if now_us < hold.until_us:
            self._report(
                f"S1: {named} is given to {member_id} at {now_us} us, and {hold.member_id} has it "
                f"until {hold.until_us} us"
            )

    def _check_count(
        self,
        view: ShareView,
        named: str,
        limits: GroupView,
        offset: int,
        count: int,
        incarnation: object,
    ) -> None:
        if not 1 <= count <= limits.deliveries[1]:
            self._report(f"S4: {named} has delivery count {count}")
        before, last = view.last.get(offset, (None, 0))
        if before is incarnation and count <= last:
            self._report(f"S4: {named} has delivery count {count} after {last}")
        kept = view.kept_counts.get(offset, 0)
        if count <= kept and not view.is_unsure:
            self._report(f"S4: {named} has delivery count {count}, released with {kept}")

    def _held_for_sure(self, view: ShareView, incarnation: object, now_us: int) -> Iterator[int]:
        for offset, hold in view.held.items():
            if hold.incarnation is incarnation and not hold.ending and now_us < hold.until_us:
                yield offset

    # Acknowledgements

    def ack_asked(
        self,
        view: ShareView,
        limits: GroupView,
        member_id: str,
        *,
        offset: int,
        ack_type: int,
        delay_ms: int,
        incarnation: object,
    ) -> Ack:
        """An acknowledgement arrived: what it finds."""
        hold = view.held.get(offset)
        if view.start_offset is None:
            # Groups that begin at the latest record may begin anywhere.
            passed = not self._from_earliest and offset not in view.counts
        else:
            passed = offset < view.start_offset
        may_be_over = bool(view.is_unsure) or passed or self.may_be_over(view, limits, offset)
        if ack_type in SETTLING:
            view.settling.add(offset)
        if hold is not None and hold.member_id == member_id:
            hold.ending = True  # A renewal ends it, too: with a shorter duration, sooner.
        return Ack(view, offset, ack_type, delay_ms, hold, incarnation, may_be_over)

    def ack_refused(self, ack: Ack, member_id: str) -> None:
        """Nothing changed."""
        if ack.hold is not None and ack.hold.member_id == member_id:
            ack.hold.ending = False

    def ack_confirmed(
        self,
        ack: Ack,
        named: str,
        member_id: str,
        limits: GroupView,
        *,
        arrived_us: int,
        now_us: int,
    ) -> None:
        """The broker said yes."""
        view, hold, offset = ack.view, ack.hold, ack.offset
        if not ack.may_be_over:
            self._check_right(ack, named, member_id, arrived_us)
        if hold is not None and hold.member_id == member_id:
            if ack.ack_type == RENEW:
                # The broker says yes, too, where there is nothing left to renew.
                until_us = _whole_ms(arrived_us) + limits.lock_ms[0] * 1000
                hold.until_us = 0 if ack.may_be_over else until_us
                hold.ending = False
                hold.ends_us = now_us + limits.lock_ms[1] * 1000 + 1000
                return
            if view.held.get(offset) is hold:
                del view.held[offset]
            if not ack.may_be_over and hold.incarnation is ack.incarnation:
                self._note_end(ack, hold, limits)
            if ack.ack_type == RELEASE and not ack.may_be_over:
                view.kept_counts[offset] = max(hold.count, view.kept_counts.get(offset, 0))
                if ack.delay_ms > 0:
                    view.delayed[offset] = _whole_ms(arrived_us) + ack.delay_ms * 1000
        if ack.ack_type in SETTLING:
            view.settled.setdefault(offset, now_us)

    def _note_end(self, ack: Ack, hold: Hold, limits: GroupView) -> None:
        """The record is over for good, or may be."""
        if ack.ack_type == ACCEPT:
            ack.view.accepted.add(ack.offset)
        exhausted = ack.ack_type == RELEASE and hold.count >= limits.deliveries[1]
        if ack.ack_type == REJECT or exhausted:
            ack.view.failed.add(ack.offset)

    def _check_right(self, ack: Ack, named: str, member_id: str, arrived_us: int) -> None:
        """The member must have had the record, and its lock must have lasted."""
        hold = ack.hold
        if hold is None:
            self._report(f"S1: {named} is settled by {member_id}, which does not have it")
        elif hold.member_id != member_id:
            if hold.incarnation is ack.incarnation:
                self._report(f"S1: {named} is settled by {member_id}, {hold.member_id} has it")
        elif arrived_us > hold.ends_us:
            self._report(f"S1: {named} is settled by {member_id} at {arrived_us} us, too late")
        elif hold.incarnation not in (ack.incarnation, EITHER):
            self._report(f"S1: {named} is settled by {member_id}, which had it before a restart")

    # Sessions and groups

    def release_asked(self, group: str, member_id: str, partitions: set[Partition]) -> list[Hold]:
        """A session is being closed: what its member holds there is about to go back."""
        found = []
        for partition in partitions:
            for hold in self.view(group, partition).held.values():
                if hold.member_id == member_id:
                    hold.ending = True
                    found.append(hold)
        return found

    def released(self, group: str, member_id: str, partitions: set[Partition]) -> None:
        """A session is over: what its member held there has gone back."""
        for partition in partitions:
            held = self.view(group, partition).held
            for offset in [locked for locked, hold in held.items() if hold.member_id == member_id]:
                del held[offset]

    def described(
        self,
        group: str,
        partition: Partition,
        limits: GroupView,
        *,
        start_offset: int,
        lag: int,
        log_start: int,
        log_end: int,
        confirmed: dict[int, bytes],
    ) -> None:
        """The answer to DescribeShareGroupOffsets; the log had grown to ``log_end`` at least."""
        view, named = self.view(group, partition), f"{group} {partition}"
        if view.is_unsure or start_offset < 0:
            return
        before = view.start_offset
        # A group that begins at the latest record may come to another beginning as long as its
        # subscription is not confirmed: its coordinators may disagree after a failed write.
        if before is not None and (view.counts or self._from_earliest):
            if start_offset < before:
                self._report(f"S5: {named} start offset went from {before} to {start_offset}")
            for offset in range(max(before, log_start), start_offset):
                if offset in confirmed and not self.may_be_over(view, limits, offset):
                    self._report(f"S5: {named} start is {start_offset}, {offset} is not settled")
        if view.counts or self._from_earliest:
            view.start_offset = start_offset
        if lag >= 0:
            self._check_lag(view, named, limits, start_offset, lag, log_start, log_end, confirmed)

    def _check_lag(
        self,
        view: ShareView,
        named: str,
        limits: GroupView,
        start_offset: int,
        lag: int,
        log_start: int,
        log_end: int,
        confirmed: dict[int, bytes],
    ) -> None:
        least = sum(
            1
            for offset in range(max(start_offset, log_start), log_end)
            if offset in confirmed and not self.may_be_over(view, limits, offset)
        )
        if lag < least:
            self._report(f"S7: {named} lag is {lag}, expected {least} or more")

    def listed(self, group: str, partition: Partition, listed: Any, asked_us: int) -> None:
        """The runs in an answer to DescribeShareGroupOffsets that was asked for then."""
        view, position = self.view(group, partition), 0
        if view.is_unsure or view.was_reset:
            return
        for run in listed.runs:
            named = f"{group} {partition} {run.first_offset}-{run.last_offset}"
            if not position <= run.first_offset <= run.last_offset < listed.end_offset:
                self._report(f"S14: {named} is listed behind {position} of {listed.end_offset}")
            if (run.state == ACQUIRED) is (run.member_id is None):
                self._report(f"S14: {named} in state {run.state} has member {run.member_id}")
            position = run.last_offset + 1
            for offset in range(run.first_offset, position):
                settled_us = view.settled.get(offset, asked_us)
                if settled_us < asked_us and run.state not in OVER:
                    self._report(f"S14: {offset} of {named} is settled, listed as {run.state}")


def _whole_ms(us: int) -> int:
    """The broker counts locks in whole milliseconds."""
    return us // 1000 * 1000
