"""The budgets of received requests and of answers, with connections that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial

from sharegroup.broker.load.answer_budget import AnswerAccount, AnswerBudget
from sharegroup.broker.load.byte_budgets import CHECK_MS
from sharegroup.broker.load.request_budget import SMALL_BYTES, RequestAccount, RequestBudget
from sharegroup.core.security.principal import Principal
from sharegroup.testing.virtual_time import ManualClock

MIB = 1024 * 1024
PROGRESS_MS = 30_000


def in_loop(test: Callable[[], None]) -> Callable[[], None]:
    """Run a test on an event loop; budgets call from there."""

    def run() -> None:
        async def main() -> None:
            test()
            await asyncio.sleep(0)

        asyncio.run(main())

    return run


class Peer:
    """A connection: what its transport holds, and what it received of a frame."""

    def __init__(self) -> None:
        self.unsent = self.buffered = self.needed = 0
        self.frame_began_ms: int | None = None
        self.went_on = 0
        self.closed: list[str] = []
        self.account: AnswerAccount | RequestAccount | None = None
        self.try_again: Callable[[], object] = lambda: None

    def unsent_bytes(self) -> int:
        return self.unsent

    def receiving(self) -> tuple[int | None, int, int]:
        return self.frame_began_ms, self.buffered, self.needed

    def go_on(self) -> None:
        self.went_on += 1
        self.try_again()

    def close(self, reason: str) -> None:
        self.closed.append(reason)
        assert self.account is not None
        self.account.close()


class Answers:
    """A budget of 8 MiB, 4 MiB for one connection."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.woken: list[Hashable] = []
        self.budget = AnswerBudget(
            self.clock,
            self._wake,
            bytes_max=8 * MIB,
            connection_bytes_max=4 * MIB,
            progress_ms=PROGRESS_MS,
        )

    def _wake(self, key: Hashable) -> None:
        self.woken.append(key)
        if self.budget.used_bytes >= self.budget.bytes_max:
            self.budget.want(key)

    def peer(self, unsent: int = 0) -> tuple[Peer, AnswerAccount]:
        peer = Peer()
        account = peer.account = AnswerAccount(self.budget, peer)
        peer.unsent = unsent
        if unsent:
            account.written(unsent)
        return peer, account

    def check(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(CHECK_MS / 1000)


@in_loop
def test_the_answer_that_is_written_next_has_room_beside_its_followers() -> None:
    answers = Answers()
    _, account = answers.peer()
    account.reserve(2, account.room(2))
    assert account.room(3) == 0
    assert account.room(1) == MIB


@in_loop
def test_room_is_limited_by_the_connection_and_the_total() -> None:
    answers = Answers()
    _, first = answers.peer(3 * MIB)
    assert first.room(1) == MIB
    answers.peer(3 * MIB)
    _, third = answers.peer()
    assert third.room(1) == 2 * MIB  # The reserve of 1 MiB is for connections that hold nothing.
    third.reserve(1, 10)
    assert third.room(1) == MIB - 10


@in_loop
def test_reserved_bytes_count_until_the_answer_is_settled() -> None:
    answers = Answers()
    _, account = answers.peer()
    account.reserve(1, MIB)
    account.reserve(2, MIB)
    account.reserve(2, 2 * MIB)  # In place of what it had.
    assert answers.budget.used_bytes == 3 * MIB
    assert account.settle(1) == MIB
    assert account.settle(7) == 0
    account.refresh()
    assert answers.budget.used_bytes == 2 * MIB
    account.close()
    assert answers.budget.used_bytes == 0


@in_loop
def test_large_response_counts_in_full_until_its_last_byte_is_sent() -> None:
    answers = Answers()
    peer, account = answers.peer(3 * MIB)
    peer.unsent = 1
    account.refresh()
    assert answers.budget.used_bytes == 3 * MIB
    peer.unsent = 0
    account.refresh()
    assert answers.budget.used_bytes == 0


@in_loop
def test_peers_that_take_nothing_are_closed_largest_first_when_others_need_room() -> None:
    answers = Answers()
    large, _ = answers.peer(4 * MIB)
    small, _ = answers.peer(3 * MIB)
    _, waiting = answers.peer()
    waiting.reserve(1, MIB)
    assert waiting.room(1) <= 0
    waiting.want("a fetch")
    answers.check()
    assert not large.closed
    answers.check()
    assert len(large.closed) == 1
    assert "holds 4194304 bytes" in large.closed[0]
    assert "sharegroup.answers.max.bytes=8388608" in large.closed[0]
    assert not small.closed
    assert answers.woken
    assert answers.budget.evicted_count == 1


@in_loop
def test_peer_that_reads_at_a_fair_rate_is_not_closed() -> None:
    answers = Answers()
    reading, account = answers.peer(4 * MIB)
    stalled, _ = answers.peer(4 * MIB)
    _, waiting = answers.peer()
    waiting.want("a fetch")
    for _ in range(2):
        reading.unsent -= 200_000
        answers.check()
    assert stalled.closed
    assert not reading.closed
    assert account.held_bytes == 4 * MIB


@in_loop
def test_slow_peers_are_not_closed_while_no_request_needs_room() -> None:
    answers = Answers()
    peer, account = answers.peer(4 * MIB)
    assert not account.may_answer()  # The connection is at its limit; the total has room.
    answers.check(8)
    assert not peer.closed
    assert peer.went_on
    peer.unsent = 0
    assert account.may_answer()


def test_waiting_fetch_continues_when_room_becomes_free() -> None:
    async def run() -> None:
        answers = Answers()
        peer, account = answers.peer(4 * MIB)
        answers.peer(4 * MIB)
        blocked, other = answers.peer()
        assert not other.may_answer()
        other.want("a fetch")
        peer.unsent = 0
        account.refresh()
        await asyncio.sleep(0)
        assert blocked.went_on == 1
        assert answers.woken == ["a fetch"]

    asyncio.run(run())


class Requests:
    """A budget of 8 MiB; the largest frame has 4 MiB."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.budget = RequestBudget(
            self.clock, bytes_max=8 * MIB, frame_bytes_max=4 * MIB, progress_ms=PROGRESS_MS
        )

    def peer(self) -> tuple[Peer, RequestAccount]:
        peer = Peer()
        account = peer.account = RequestAccount(self.budget, peer)
        return peer, account

    def half(self, buffered: int, needed: int) -> tuple[Peer, bool]:
        """A connection that sent the beginning of a frame; whether it may go on."""
        peer, account = self.peer()
        peer.frame_began_ms = self.clock.now_ms()
        peer.buffered, peer.needed = buffered, needed
        peer.try_again = lambda: account.note(peer.buffered, peer.needed)
        return peer, account.note(buffered, needed)

    def check(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(CHECK_MS / 1000)


@in_loop
def test_large_frame_gets_room_for_its_whole_size_or_waits() -> None:
    requests = Requests()
    assert requests.half(100, 4 * MIB)[1]
    assert not requests.half(100, 4 * MIB)[1]  # An eighth of 8 MiB is the reserve.
    assert requests.half(100, 2 * MIB)[1]
    assert requests.budget.used_bytes == 6 * MIB + 100


@in_loop
def test_small_frames_always_have_room() -> None:
    requests = Requests()
    requests.half(100, 4 * MIB)
    requests.half(100, 3 * MIB)
    assert all(requests.half(SMALL_BYTES // 2, SMALL_BYTES)[1] for _ in range(20))


@in_loop
def test_halves_without_progress_are_closed_when_others_need_room() -> None:
    requests = Requests()
    stalled, _ = requests.half(3 * MIB, 4 * MIB)
    busy, _ = requests.half(100, 2 * MIB)
    waiting, granted = requests.half(100, 3 * MIB)
    assert not granted
    for _ in range(2):
        busy.buffered += 100_000
        requests.check()
    assert len(stalled.closed) == 1
    assert "queued.max.request.bytes=8388608" in stalled.closed[0]
    assert not busy.closed
    assert not waiting.closed
    assert waiting.went_on


@in_loop
def test_stalled_frames_are_not_closed_while_no_request_needs_room() -> None:
    requests = Requests()
    peer, _ = requests.half(3 * MIB, 4 * MIB)
    requests.check(8)
    assert not peer.closed


@in_loop
def test_smallest_waiting_frames_get_room_first() -> None:
    requests = Requests()
    stalled, _ = requests.half(3 * MIB, 4 * MIB)
    requests.half(100, 3 * MIB)
    order: list[int] = []
    for needed in (4 * MIB, MIB):
        peer, _ = requests.half(100, needed)
        peer.try_again = partial(order.append, needed)
    requests.check()
    assert not stalled.closed
    assert order == [MIB, 4 * MIB]


@in_loop
def test_a_request_that_waits_for_a_disk_is_no_reason_to_close() -> None:
    requests = Requests()
    producer, account = requests.peer()
    account.dispatched(1, 4 * MIB, is_parked=False)
    account.note_no_frame()
    parked, parked_account = requests.peer()
    parked_account.dispatched(1, 3 * MIB, is_parked=True)
    parked_account.note_no_frame()
    _, granted = requests.half(100, 2 * MIB)
    assert not granted
    requests.check(2)
    assert not producer.closed
    assert parked.closed
    assert account.answered(1)
    account.note_no_frame()
    assert account.held_bytes == 0


@in_loop
def test_connections_without_a_grant_are_closed_beyond_the_limit() -> None:
    requests = Requests()
    peers = [requests.half(MIB // 4, 4 * MIB)[0] for _ in range(40)]
    assert requests.budget.used_bytes <= 8 * MIB
    assert not peers[0].closed  # It was granted its room.
    assert any(peer.closed for peer in peers)


@in_loop
def test_no_limit() -> None:
    budget = RequestBudget(ManualClock(), bytes_max=-1, frame_bytes_max=MIB, progress_ms=100)
    assert RequestAccount(budget, Peer()).note(10, 2**40)


ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


def shared_answers() -> Answers:
    """Seven of 8 MiB are common, and one user may hold half of them."""
    answers = Answers()
    answers.budget.user_bytes_max = answers.budget.common_bytes_max // 2
    return answers


@in_loop
def test_answers_of_one_user_leave_room_for_those_of_another() -> None:
    answers = shared_answers()
    of_alice = [answers.peer(), answers.peer()]
    for peer, account in of_alice:
        account.assign(ALICE)
        peer.unsent = 3 * MIB // 2
        account.written(3 * MIB // 2)
    _, third = answers.peer()
    third.assign(ALICE)
    assert third.room(1) == MIB // 2
    _, other = answers.peer()
    other.assign(BOB)
    assert other.room(1) == 7 * MIB // 2


@in_loop
def test_bytes_held_before_a_login_count_for_the_user_and_go_with_the_connection() -> None:
    answers = shared_answers()
    _, first = answers.peer(3 * MIB)
    first.assign(ALICE)
    _, second = answers.peer()
    second.assign(ALICE)
    assert second.room(1) == MIB // 2
    first.close()
    assert second.room(1) == 4 * MIB  # While little is held, only a connection has a limit.
    second.close()
    assert answers.budget._shares == {}


@in_loop
def test_frames_of_one_user_wait_while_those_of_others_have_room() -> None:
    budget = RequestBudget(
        ManualClock(),
        bytes_max=8 * MIB,
        frame_bytes_max=4 * MIB,
        progress_ms=PROGRESS_MS,
        user_percent=50,
    )
    accounts = [RequestAccount(budget, Peer()) for _ in range(4)]
    for account, user in zip(accounts, (ALICE, ALICE, ALICE, BOB), strict=True):
        account.assign(user)
    granted = [account.note(1_000, 3 * MIB // 2) for account in accounts]
    assert granted == [True, True, False, True]
    accounts[0].close()
    assert accounts[2].note(1_000, 3 * MIB // 2)


@in_loop
def test_frame_that_is_larger_than_the_share_of_its_user_gets_through_alone() -> None:
    budget = RequestBudget(
        ManualClock(),
        bytes_max=8 * MIB,
        frame_bytes_max=6 * MIB,
        progress_ms=PROGRESS_MS,
        user_percent=50,
    )
    large, second = (RequestAccount(budget, Peer()) for _ in range(2))
    large.assign(ALICE)
    second.assign(ALICE)
    assert large.note(1_000, 6 * MIB)
    assert not second.note(1_000, MIB)
