"""Follows share sessions; hands deliveries and acknowledgements to the checks of share groups.

A request is looked at three times: as it arrives (what it finds), right after it was decided
(which incarnation of a share partition had it), and when its answer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.sim.check_logs import LogChecks
from tests.sim.check_shares import (
    Ack,
    GroupView,
    Hold,
    Report,
    SessionView,
    ShareChecks,
    ShareView,
)
from tests.sim.messages import Partition
from tests.sim.wiretap import Exchange

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Soon = Callable[[Callable[[], None]], None]
"""Calls something once what runs now has run."""


@dataclass(slots=True, eq=False)
class Asked:
    """What a share request found when it arrived."""

    epoch_is_right: bool = False
    session_before: SessionView | None = None
    acks: list[tuple[Partition, Ack]] = field(default_factory=list)
    releasing: list[Hold] = field(default_factory=list)
    views: dict[Partition, ShareView] = field(default_factory=dict)
    incarnations: dict[Partition, object] = field(default_factory=dict)
    session: SessionView | None = None


class ShareRequests:
    """Checks the requests and responses of share sessions."""

    def __init__(
        self,
        shares: ShareChecks,
        logs: LogChecks,
        *,
        group: Callable[[str], GroupView],
        incarnation: Callable[[str, Partition], object],
        soon: Soon,
        reads_committed: bool,
        by_key: bool,
        report: Report,
    ) -> None:
        self.shares = shares
        self.logs = logs
        self._group = group
        self._incarnation = incarnation
        self._soon = soon
        self._reads_committed = reads_committed
        self._by_key = by_key
        self._report = report
        self._asked: dict[Exchange, Asked] = {}

    def _ShareFetch_asked(self, exchange: Exchange) -> None:  # noqa: N802
        request, asked = exchange.request, self._share_asked(exchange)
        named = [where for where, _ in _requested(request.topics)]
        forgotten = [
            Partition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions = self._group(request.group_id).sessions
        if request.share_session_epoch == OPEN_EPOCH:
            asked.epoch_is_right = True
            asked.session = SessionView(exchange.connection, 1, set(named))
            sessions[request.member_id] = asked.session
        elif asked.session is not None and asked.epoch_is_right:
            asked.session.partitions |= set(named)
            asked.session.partitions -= set(forgotten)
        partitions = set(named) | (asked.session.partitions if asked.session else set())
        for where in partitions:
            asked.views.setdefault(where, self.shares.view(request.group_id, where))

    def _ShareAcknowledge_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self._share_asked(exchange)

    def _share_asked(self, exchange: Exchange) -> Asked:
        """What both kinds have in common: the epoch, and the acknowledgements."""
        request = exchange.request
        group = self._group(request.group_id)
        session = group.sessions.get(request.member_id)
        asked = Asked(session_before=session, session=session)
        self._asked[exchange] = asked
        epoch = request.share_session_epoch
        if session is not None and epoch in (CLOSE_EPOCH, session.expected_epoch):
            asked.epoch_is_right = True
            session.expected_epoch = 1 if epoch == EPOCH_MAX else session.expected_epoch + 1
        if asked.epoch_is_right and epoch != OPEN_EPOCH:
            self._note_acks(request, group, asked)
        if epoch == CLOSE_EPOCH and session is not None:
            asked.releasing = self.shares.release_asked(
                request.group_id, request.member_id, session.partitions
            )
            del group.sessions[request.member_id]
        self._soon(lambda: self._note_incarnations(request.group_id, asked))
        return asked

    def _note_acks(self, request: Any, group: GroupView, asked: Asked) -> None:
        for where, wanted in _requested(request.topics):
            view = self.shares.view(request.group_id, where)
            asked.views[where] = view
            incarnation = self._incarnation(request.group_id, where)
            for offset, ack_type, delay_ms in _acks(wanted.acknowledgement_batches):
                ack = self.shares.ack_asked(
                    view,
                    group,
                    request.member_id,
                    offset=offset,
                    ack_type=ack_type,
                    # The last request of a session gives back what was not begun: at once.
                    delay_ms=0 if request.share_session_epoch == CLOSE_EPOCH else delay_ms,
                    incarnation=incarnation,
                )
                ack.may_be_over |= self.logs.view(where).may_be_no_record(
                    offset, reads_committed=self._reads_committed
                )
                asked.acks.append((where, ack))

    def _note_incarnations(self, group: str, asked: Asked) -> None:
        for where in asked.views if not asked.incarnations else ():
            asked.incarnations[where] = self._incarnation(group, where)

    def _ShareFetch_answered(self, exchange: Exchange) -> None:  # noqa: N802
        asked = self._asked.pop(exchange)
        if not self._session_goes_on(exchange, asked):
            return
        errors = {
            Partition(topic.topic_id, partition.partition_index): int(
                partition.acknowledge_error_code
            )
            for topic in exchange.answer.responses
            for partition in topic.partitions
        }
        self._acks_answered(exchange, asked, errors)
        for topic in exchange.answer.responses:
            for partition in topic.partitions:
                if partition.acquired_records:
                    where = Partition(topic.topic_id, partition.partition_index)
                    self._delivered(exchange, asked, where, partition)

    def _ShareAcknowledge_answered(self, exchange: Exchange) -> None:  # noqa: N802
        asked = self._asked.pop(exchange)
        if not self._session_goes_on(exchange, asked):
            return
        errors = {
            Partition(topic.topic_id, partition.partition_index): int(partition.error_code)
            for topic in exchange.answer.responses
            for partition in topic.partitions
        }
        self._acks_answered(exchange, asked, errors)

    def _ShareFetch_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        """It may have locked records, and its acknowledgements may have been applied."""
        asked = self._asked.pop(exchange)
        for view in asked.views.values():
            view.unseen += 1
        self._closed(exchange, asked)

    def _ShareAcknowledge_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        self._closed(exchange, self._asked.pop(exchange))

    def _session_goes_on(self, exchange: Exchange, asked: Asked) -> bool:
        request = exchange.request
        if int(exchange.answer.error_code) == 0:
            if not asked.epoch_is_right:
                self._report(
                    f"S9: {request.group_id} {request.member_id} was served with session epoch "
                    f"{request.share_session_epoch}"
                )
            return True
        for _, ack in asked.acks:
            self.shares.ack_refused(ack, request.member_id)
        for hold in asked.releasing:
            hold.ending = False
        sessions = self._group(request.group_id).sessions
        if asked.session is not None and sessions.get(request.member_id) is asked.session:
            if asked.session_before is None:
                del sessions[request.member_id]
            else:
                sessions[request.member_id] = asked.session_before
        return False

    def _acks_answered(
        self, exchange: Exchange, asked: Asked, errors: dict[Partition, int]
    ) -> None:
        request = exchange.request
        for where, ack in asked.acks:
            if errors.get(where, 0):
                self.shares.ack_refused(ack, request.member_id)
                continue
            self.shares.ack_confirmed(
                ack,
                f"{request.group_id} {where}-{ack.offset}",
                request.member_id,
                self._group(request.group_id),
                arrived_us=exchange.arrived_us,
                now_us=exchange.answered_us or 0,
            )
        self._closed(exchange, asked)

    def _closed(self, exchange: Exchange, asked: Asked) -> None:
        """Where the request was a session's last one, what its member held has gone back."""
        request = exchange.request
        if request.share_session_epoch == CLOSE_EPOCH and asked.session is not None:
            partitions = asked.session.partitions
            self.shares.released(request.group_id, request.member_id, partitions)

    def _delivered(
        self, exchange: Exchange, asked: Asked, where: Partition, partition: Any
    ) -> None:
        request = exchange.request
        paused_us = self._group(request.group_id).paused_us
        if paused_us is not None and exchange.arrived_us > paused_us:
            self._report(f"S15: {request.group_id} gets records of {where} although it is paused")
        if partition.batches is None:
            # Batches that others hold or that are settled are left out.
            values = self.logs.delivered(where, partition.records or b"", is_dense=False)
            offsets = set(values)
        else:
            values = self.logs.view(where).records
            offsets = {
                offset
                for batch in partition.batches
                if not batch.flags
                for offset in range(batch.first_offset, batch.end_offset)
            }
        view = self.shares.view(request.group_id, where)
        if view is not asked.views.get(where):
            return  # It was reset meanwhile.
        if not asked.incarnations:  # It was answered at once.
            self._note_incarnations(request.group_id, asked)
        for acquired in partition.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset in values and self._reads_committed:
                    self.logs.check_committed(where, offset, values[offset])
                if offset not in offsets and not self.logs.view(where).has_markers:
                    self._report(f"S3: {request.group_id} {where}-{offset} has no record")
                if self._by_key:
                    self._check_key_order(request.group_id, where, offset)
                self.shares.delivered(
                    request.group_id,
                    where,
                    request.member_id,
                    self._group(request.group_id),
                    offset=offset,
                    count=acquired.delivery_count,
                    arrived_us=exchange.arrived_us,
                    now_us=exchange.answered_us or 0,
                    acquired_in=asked.incarnations.get(where),
                    log_start=self.logs.view(where).deletable_to,
                )

    def _check_key_order(self, group: str, where: Partition, offset: int) -> None:
        """S13: all records of the same key before this one are settled."""
        view, log = self.shares.view(group, where), self.logs.view(where)
        if view.is_unsure or view.was_reset or offset not in log.keys:
            return
        start = max(log.deletable_to, view.start_offset or 0)
        for lower, key in log.keys.items():
            if start <= lower < offset and key == log.keys[offset]:
                is_nothing = log.may_be_no_record(lower, reads_committed=self._reads_committed)
                if not is_nothing and not self.shares.may_be_over(view, self._group(group), lower):
                    self._report(f"S13: {group} {where}-{offset} comes before {lower} is settled")


def _requested(topics: Iterable[Any]) -> Iterator[tuple[Partition, Any]]:
    for topic in topics:
        for partition in topic.partitions:
            yield Partition(topic.topic_id, partition.partition_index), partition


def _acks(batches: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
    """Each offset with its type and its delay."""
    for batch in batches:
        types, delay_ms = batch.acknowledge_types, batch.redelivery_delay_ms
        for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
            yield offset, types[0] if len(types) == 1 else types[index], delay_ms
