"""The share coordinator's decisions, one share partition at a time."""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.core.delivery.delivery import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Delta,
    StateBatch,
)
from sharegroup.core.delivery.stored.share_states import (
    NO_SUMMARY,
    PersistedState,
    Records,
    ShareSnapshot,
    ShareStateRecord,
    ShareStates,
    ShareTombstone,
    ShareUpdate,
    StateSummary,
)
from sharegroup.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from sharegroup.ids import GroupId, SharePartitionKey, TopicId

TOPIC = TopicId(UUID(int=1))
KEY = SharePartitionKey(GroupId("orders"), TOPIC, 0)


def taken(first: int, end: int, count: int = 1) -> StateBatch:
    return StateBatch(first, end, ACKNOWLEDGED, count)


def given_back(first: int, end: int, count: int = 1) -> StateBatch:
    return StateBatch(first, end, AVAILABLE, count)


def replayed(states: ShareStates, records: Records) -> Records:
    for record in records:
        states.replay(record)
    return records


def initialized(*, start_offset: int = 100, updates_per_snapshot: int = 500) -> ShareStates:
    states = ShareStates(updates_per_snapshot=updates_per_snapshot)
    replayed(states, states.initialize(KEY, state_epoch=2, start_offset=start_offset, wall_ms=10))
    return states


def write(
    states: ShareStates,
    *batches: StateBatch,
    start_offset: int = 100,
    complete: int = 0,
    leader_epoch: int = 0,
    state_epoch: int = 2,
) -> ShareStateRecord:
    (record,) = replayed(
        states,
        states.write(
            KEY,
            Delta(start_offset, complete, batches),
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            wall_ms=20,
        ),
    )
    return record


def persisted(states: ShareStates, *, leader_epoch: int = 0) -> PersistedState:
    records, state = states.read(KEY, leader_epoch=leader_epoch, wall_ms=30)
    replayed(states, records)
    return state


def batches(states: ShareStates) -> tuple[StateBatch, ...]:
    return persisted(states).batches


def test_initialize_writes_a_first_snapshot() -> None:
    states = ShareStates()
    assert states.initialize(KEY, state_epoch=2, start_offset=100, wall_ms=10) == (
        ShareSnapshot(KEY, 0, 2, 0, 100, 0, 10, 10, ()),
    )


def test_command_alone_changes_nothing() -> None:
    states = ShareStates()
    states.initialize(KEY, state_epoch=2, start_offset=100, wall_ms=10)
    assert KEY not in states


def test_initialize_without_a_decided_start_states_no_count() -> None:
    states = initialized(start_offset=-1)
    assert states.read_summary(KEY) == StateSummary(2, 0, -1, -1)


def test_equal_initialize_writes_nothing() -> None:
    assert initialized().initialize(KEY, state_epoch=2, start_offset=100, wall_ms=11) == ()


def test_initializing_again_replaces_the_state_even_with_a_lower_start_offset() -> None:
    states = initialized()
    write(states, taken(101, 105), start_offset=100)
    replayed(states, states.initialize(KEY, state_epoch=3, start_offset=7, wall_ms=50))
    assert persisted(states) == PersistedState(3, 7, 0, ())


def test_initialize_of_an_older_epoch_is_fenced() -> None:
    states = initialized()
    with pytest.raises(FencedStateEpoch, match=r"state epoch 1 is fenced.* in epoch 2"):
        states.initialize(KEY, state_epoch=1, start_offset=0, wall_ms=11)


def test_unknown_share_partition_is_not_read_or_written() -> None:
    states = ShareStates()
    with pytest.raises(InvalidRequest, match=r"group 'orders'.*partition 0: .*never initialized"):
        persisted(states)
    with pytest.raises(InvalidRequest, match="never initialized"):
        write(states)


@pytest.mark.parametrize("key", [KEY, KEY._replace(partition=-1)])
def test_negative_numbers_are_refused(key: SharePartitionKey) -> None:
    with pytest.raises(InvalidRequest, match="must be 0 or more"):
        initialized().initialize(key, state_epoch=-1, start_offset=0, wall_ms=0)


def test_update_contains_only_the_changes() -> None:
    states = initialized()
    write(states, given_back(105, 107))
    assert write(states, taken(101, 103), complete=2) == ShareUpdate(
        KEY, 0, 0, 100, 2, (taken(101, 103),)
    )


def test_state_is_the_snapshot_and_all_updates_after_it() -> None:
    states = initialized()
    write(states, given_back(105, 107))
    write(states, taken(101, 103), complete=2)
    write(states, taken(110, 112, 2), complete=4)
    assert persisted(states) == PersistedState(
        2, 100, 4, (taken(101, 103), given_back(105, 107), taken(110, 112, 2))
    )


def test_offsets_never_written_are_in_no_batch() -> None:
    states = initialized()
    write(states, taken(1_000_000, 1_000_001))
    assert batches(states) == (taken(1_000_000, 1_000_001),)


def test_higher_delivery_count_holds() -> None:
    states = initialized()
    write(states, taken(100, 110, 1))
    write(states, given_back(103, 105, 2))
    assert batches(states) == (taken(100, 103), given_back(103, 105, 2), taken(105, 110))


def test_late_release_cannot_undo_an_accept_of_the_same_delivery() -> None:
    states = initialized()
    write(states, taken(101, 110))
    write(states, given_back(99, 120))
    assert batches(states) == (given_back(100, 101), taken(101, 110), given_back(110, 120))


def test_archived_holds_over_accepted_within_one_delivery() -> None:
    states = initialized()
    write(states, StateBatch(101, 103, ARCHIVED, 1))
    write(states, taken(101, 103))
    assert batches(states) == (StateBatch(101, 103, ARCHIVED, 1),)


def test_equal_neighbours_become_one_batch() -> None:
    states = initialized()
    for first in (105, 101, 103):
        write(states, taken(first, first + 2))
    assert batches(states) == (taken(101, 107),)


def test_update_is_combined_and_cut_at_the_start_offset() -> None:
    states = initialized()
    record = write(states, taken(95, 104, 2), given_back(102, 108, 1), start_offset=101)
    assert record == ShareUpdate(KEY, 0, 0, 101, 0, (taken(101, 104, 2), given_back(104, 108)))


def test_advancing_the_start_offset_drops_lower_batches() -> None:
    states = initialized()
    write(states, taken(101, 110), complete=9)
    write(states, start_offset=105, complete=5)
    assert persisted(states) == PersistedState(2, 105, 5, (taken(105, 110),))


def test_start_offset_beyond_all_batches_drops_them() -> None:
    states = initialized()
    write(states, taken(101, 110), complete=9)
    write(states, start_offset=500)
    assert persisted(states) == PersistedState(2, 500, 0, ())


def test_start_offset_and_its_count_never_decrease() -> None:
    states = initialized()
    write(states, start_offset=105, complete=1)
    record = write(states, taken(106, 107), start_offset=101, complete=4)
    assert record == ShareUpdate(KEY, 0, 0, 105, 1, (taken(106, 107),))


def test_greater_of_two_complete_counts_at_one_start_offset_is_kept() -> None:
    states = initialized()
    write(states, taken(101, 104), complete=3)
    write(states, taken(101, 102), complete=1)
    assert states.read_summary(KEY).delivery_complete_count == 3


def test_smaller_count_holds_when_the_start_offset_moved_on() -> None:
    states = initialized()
    write(states, taken(101, 104), complete=3)
    write(states, start_offset=104, complete=0)
    assert states.read_summary(KEY) == StateSummary(2, 0, 104, 0)


def test_snapshot_is_due_after_so_many_updates() -> None:
    states = initialized(updates_per_snapshot=2)
    first = write(states, taken(101, 102), complete=1)
    second = write(states, taken(103, 104), complete=2)
    third = write(states, given_back(105, 106), complete=2)
    fourth = write(states, taken(105, 106), complete=3)
    assert [type(record) for record in (first, second)] == [ShareUpdate, ShareUpdate]
    assert third == ShareSnapshot(
        KEY, 1, 2, 0, 100, 2, 20, 20, (taken(101, 102), taken(103, 104), given_back(105, 106))
    )
    assert fourth == ShareUpdate(KEY, 1, 0, 100, 3, (taken(105, 106),))


def test_snapshot_is_cut_at_the_new_start_offset() -> None:
    states = initialized(updates_per_snapshot=1)
    write(states, taken(101, 110))
    record = write(states, start_offset=105)
    assert isinstance(record, ShareSnapshot)
    assert (record.start_offset, record.batches) == (105, (taken(105, 110),))


def test_every_write_is_a_snapshot_when_no_update_may_precede_it() -> None:
    states = initialized(updates_per_snapshot=0)
    assert isinstance(write(states, taken(101, 102)), ShareSnapshot)


def test_read_by_a_known_leader_writes_no_record() -> None:
    states = initialized()
    assert states.read(KEY, leader_epoch=0, wall_ms=30) == ((), PersistedState(2, 100, 0, ()))


def test_new_leader_fences_the_one_before() -> None:
    states = initialized()
    write(states, taken(101, 102), complete=1)
    records, _ = states.read(KEY, leader_epoch=5, wall_ms=30)
    assert replayed(states, records) == (ShareUpdate(KEY, 0, 5, 100, 1, ()),)
    with pytest.raises(
        FencedLeaderEpoch, match=r"leader epoch 4 is fenced.* epoch 5 has been seen"
    ):
        write(states, leader_epoch=4)
    with pytest.raises(FencedLeaderEpoch):
        persisted(states, leader_epoch=4)
    assert batches_of_leader(states, 5) == (taken(101, 102),)


def batches_of_leader(states: ShareStates, leader_epoch: int) -> tuple[StateBatch, ...]:
    return persisted(states, leader_epoch=leader_epoch).batches


def test_initialize_again_does_not_let_a_fenced_leader_back_in() -> None:
    states = initialized()
    persisted(states, leader_epoch=5)
    replayed(states, states.initialize(KEY, state_epoch=3, start_offset=0, wall_ms=50))
    assert states.read_summary(KEY).leader_epoch == 0
    with pytest.raises(FencedLeaderEpoch):
        persisted(states, leader_epoch=4)


def test_write_does_not_make_its_leader_known() -> None:
    states = initialized()
    write(states, leader_epoch=9)
    assert persisted(states, leader_epoch=3).state_epoch == 2


def test_write_of_an_older_state_epoch_is_fenced() -> None:
    states = initialized()
    replayed(states, states.initialize(KEY, state_epoch=4, start_offset=0, wall_ms=50))
    with pytest.raises(FencedStateEpoch, match=r"state epoch 2 is fenced.*in epoch 4"):
        write(states, taken(0, 5))
    assert batches(states) == ()


def test_leader_epoch_is_checked_before_the_state_epoch() -> None:
    states = initialized()
    persisted(states, leader_epoch=5)
    with pytest.raises(FencedLeaderEpoch):
        write(states, leader_epoch=4, state_epoch=1)


def test_summary_of_nothing() -> None:
    assert ShareStates().read_summary(KEY) == NO_SUMMARY == StateSummary(0, 0, -1, -1)


def test_delete_removes_all_state() -> None:
    states = initialized()
    persisted(states, leader_epoch=5)
    assert replayed(states, states.delete(KEY)) == (ShareTombstone(KEY),)
    assert (len(states), list(states)) == (0, [])
    replayed(states, states.initialize(KEY, state_epoch=1, start_offset=0, wall_ms=50))
    assert persisted(states, leader_epoch=0) == PersistedState(1, 0, 0, ())


def test_delete_of_nothing_writes_nothing() -> None:
    assert ShareStates().delete(KEY) == ()


def test_keys_of_a_topic_include_all_groups() -> None:
    states = initialized()
    other_topic = TopicId(UUID(int=2))
    keys = [
        KEY._replace(partition=1),
        KEY._replace(group_id=GroupId("bills")),
        KEY._replace(topic_id=other_topic),
    ]
    for key in keys:
        replayed(states, states.initialize(key, state_epoch=1, start_offset=0, wall_ms=1))
    assert states.keys_of_topic(TOPIC) == (KEY, keys[0], keys[1])


def test_state_within_the_log_is_not_cut() -> None:
    states = initialized()
    write(states, taken(101, 110))
    assert states.cut(KEY, 110, wall_ms=40) == ()


def test_state_past_the_log_is_cut_at_its_end() -> None:
    states = initialized()
    write(states, taken(101, 110), given_back(115, 120), complete=9)
    assert states.cut(KEY, 105, wall_ms=40) == (
        ShareSnapshot(KEY, 1, 2, 0, 100, 4, 40, 40, (taken(101, 105),)),
    )


def test_cut_moves_a_start_offset_past_the_log_back_to_the_log_end() -> None:
    states = initialized()
    write(states, taken(502, 505), start_offset=500, complete=3)
    replayed(states, states.cut(KEY, 300, wall_ms=40))
    assert persisted(states) == PersistedState(2, 300, 0, ())
    write(states, taken(301, 302), start_offset=300, complete=1)
    assert persisted(states) == PersistedState(2, 300, 1, (taken(301, 302),))


def test_update_without_its_snapshot_skips_nothing() -> None:
    """A damaged log lost the snapshot; the start offset in the update is still valid."""
    states = ShareStates()
    states.replay(ShareUpdate(KEY, 3, 0, 105, 1, (taken(107, 108),)))
    assert persisted(states) == PersistedState(0, 105, 1, (taken(107, 108),))


def test_update_may_keep_start_and_leader() -> None:
    states = initialized()
    persisted(states, leader_epoch=5)
    states.replay(ShareUpdate(KEY, 0, -1, -1, 1, (taken(101, 102),)))
    assert states.read_summary(KEY) == StateSummary(2, 5, 100, 1)


def test_late_archiving_write_does_not_undo_archived() -> None:
    states = initialized()
    write(states, StateBatch(101, 103, ARCHIVING, 2))
    write(states, StateBatch(101, 102, ARCHIVED, 2))
    write(states, StateBatch(101, 103, ARCHIVING, 2))
    assert batches(states) == (
        StateBatch(101, 102, ARCHIVED, 2),
        StateBatch(102, 103, ARCHIVING, 2),
    )


def test_snapshot_repeats_the_whole_state_and_its_creation_time() -> None:
    states = initialized()
    write(states, taken(101, 103), given_back(105, 107), complete=2)
    (record,) = states.snapshot(KEY, wall_ms=70)
    assert record == ShareSnapshot(
        key=KEY,
        snapshot_epoch=1,
        state_epoch=2,
        leader_epoch=0,
        start_offset=100,
        delivery_complete_count=2,
        create_timestamp=10,
        write_timestamp=70,
        batches=(taken(101, 103), given_back(105, 107)),
    )
    before = persisted(states)
    replayed(states, (record,))
    assert persisted(states) == before


def test_snapshot_of_an_unknown_share_partition_is_empty() -> None:
    assert ShareStates().snapshot(KEY, wall_ms=70) == ()


def test_extra_snapshot_does_not_delay_the_next_due_one() -> None:
    """As in Kafka, only a snapshot that was due restarts the count of updates."""
    states = initialized(updates_per_snapshot=3)
    write(states)
    write(states)
    replayed(states, states.snapshot(KEY, wall_ms=20))
    kinds = [type(write(states)) for _ in range(6)]
    assert kinds == [
        *(ShareUpdate, ShareSnapshot),  # Two updates came before the one between.
        *(ShareUpdate, ShareUpdate, ShareUpdate, ShareSnapshot),
    ]


def test_share_partition_is_cold_by_the_time_of_its_last_snapshot() -> None:
    states = initialized()
    write(states)  # At 20, after the snapshot at 10.
    assert states.is_cold(KEY, since_ms=10)
    assert not states.is_cold(KEY, since_ms=9)
    assert not ShareStates().is_cold(KEY, since_ms=10)


def test_log_is_needed_from_the_oldest_of_the_last_snapshots_on() -> None:
    states = ShareStates()
    other = KEY._replace(partition=1)
    both = [KEY, other]
    (first,) = states.initialize(KEY, state_epoch=1, start_offset=0, wall_ms=0)
    (second,) = states.initialize(other, state_epoch=1, start_offset=0, wall_ms=0)
    assert states.needless_before(both, log_end=7) == 7
    states.replay(first, log_offset=7)
    states.replay(second, log_offset=8)
    assert states.needless_before(both, log_end=9) == 7
    states.replay(ShareUpdate(KEY, 0, 0, 0, 0, ()), log_offset=9)
    assert states.needless_before(both, log_end=10) == 7, "an update needs its snapshot"
    (again,) = states.snapshot(KEY, wall_ms=0)
    states.replay(again, log_offset=10)
    assert states.needless_before(both, log_end=11) == 8
    states.replay(ShareTombstone(other), log_offset=11)
    assert states.needless_before(both, log_end=12) == 10


def test_estimated_snapshot_size_grows_with_each_batch() -> None:
    states = initialized()
    assert ShareStates().snapshot_bytes(KEY) == 0
    empty = states.snapshot_bytes(KEY)
    write(states, taken(101, 102), taken(105, 106))
    assert states.snapshot_bytes(KEY) == empty + 2 * 20, "the hole between is not written"


def test_snapshot_leaves_out_due_times_that_have_passed() -> None:
    states = initialized()
    batches = tuple(
        given_back(offset, offset + 1)._replace(due_ms=due_ms)
        for offset, due_ms in ((101, 500), (102, 600), (103, 700))
    )
    write(states, *batches)
    (snapshot,) = states.snapshot(KEY, wall_ms=600)
    assert snapshot.batches == (given_back(101, 103), batches[2])
    states.replay(snapshot)
    assert states.read(KEY, leader_epoch=None, wall_ms=0)[1].batches == snapshot.batches


def test_local_leader_may_omit_the_leader_epoch() -> None:
    states = initialized()
    persisted(states, leader_epoch=5)
    records, state = states.read(KEY, leader_epoch=None, wall_ms=30)
    assert (records, state.start_offset) == ((), 100)
    (record,) = states.write(
        KEY,
        Delta(100, 0, ()),
        state_epoch=2,
        leader_epoch=None,
        wall_ms=30,
    )
    assert isinstance(record, ShareUpdate)
    assert record.leader_epoch == 5
