"""The progress in a partition: what is committed, what the next owner runs, and how often."""

from __future__ import annotations

from hypothesis import given, strategies as st

from sharegroup.worker.consuming.commit_metadata import NOTHING, read
from sharegroup.worker.consuming.partition_progress import PartitionProgress
from sharegroup.worker.retrying.tier_log import Committed


def next_owner(committed: Committed) -> PartitionProgress:
    return PartitionProgress(committed.offset, read(*committed))


def commit(progress: PartitionProgress, *, is_open: bool = True) -> Committed:
    committed = progress.to_commit(reserves=0, is_open=is_open)
    assert committed is not None
    progress.committed()
    return committed


def test_only_contiguous_offsets_are_committed() -> None:
    progress = PartitionProgress(10, NOTHING)
    assert [progress.deliver(offset) for offset in (10, 11, 12, 13)] == [1, 1, 1, 1]
    progress.fresh.extend((13, 11))
    assert commit(progress).offset == 10
    progress.fresh.append(10)
    assert commit(progress).offset == 12
    progress.fresh.append(12)
    assert commit(progress, is_open=False) == (14, "")


def test_the_next_owner_skips_finished_records() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in range(10, 16):
        progress.deliver(offset)
    progress.fresh.extend((12, 14))
    after = next_owner(commit(progress, is_open=False))
    assert [after.deliver(offset) for offset in range(10, 16)] == [1, 1, None, 1, None, 1]


def test_finished_record_that_a_commit_has_passed_before_it_was_read_is_skipped() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in range(10, 15):
        progress.deliver(offset)
    progress.fresh.extend((11, 12, 14))
    after = next_owner(commit(progress, is_open=False))
    assert after.deliver(10) == 1
    after.fresh.append(10)
    assert commit(after).offset == 13
    assert [after.deliver(offset) for offset in (11, 12, 13, 14)] == [None, None, 1, None]
    after.fresh.append(13)
    assert commit(after, is_open=False) == (15, "")


def test_an_owner_that_dies_raises_the_delivery_counts_of_its_reservation() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in range(10, 13):
        progress.deliver(offset)
    assert not progress.is_reserved
    last = commit(progress)
    assert progress.is_reserved
    for times in (2, 3):
        after = next_owner(last)
        # Exactly what it was given, because these records were delivered before.
        assert after.deliver(10) == times
        last = commit(after)
        assert after.deliver(11) == 2
        assert not after.is_reserved
    assert next_owner(last).prior_count(10) == 3
    assert next_owner(last).prior_count(11) == 1
    assert next_owner(last).prior_count(10_000) == 0


def test_an_owner_that_gives_up_raises_none() -> None:
    progress = PartitionProgress(10, NOTHING)
    progress.deliver(10)
    commit(progress)
    progress.deliver(11)
    after = next_owner(commit(progress, is_open=False))
    assert [after.deliver(10), after.deliver(11)] == [1, 1]


def test_offsets_without_a_record_hold_nothing_up() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in (10, 14, 20):
        progress.deliver(offset)
    progress.fresh.extend((10, 14))
    assert commit(progress).offset == 20


def test_without_a_commit_the_first_record_is_the_start() -> None:
    progress = PartitionProgress(None, NOTHING)
    assert progress.to_commit(reserves=0) is None
    progress.deliver(500)
    assert commit(progress).offset == 500


def test_a_full_partition_takes_records_below_its_highest_finished_one_only() -> None:
    progress = PartitionProgress(0, NOTHING)
    for offset in range(200_000):
        progress.deliver(offset)
    # Gaps that cannot be compressed.
    progress.fresh.extend(offset for offset in range(1, 200_000) if hash((offset, 7)) % 11 < 3)
    progress.to_commit(reserves=0)
    assert progress.ceiling == max(
        offset + 1 for offset in range(1, 200_000) if hash((offset, 7)) % 11 < 3
    )
    progress.fresh.extend(range(200_000))
    progress.to_commit(reserves=0)
    assert progress.ceiling is None


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.sets(st.integers(0, 200)), st.booleans()),
        max_size=8,
    )
)
def test_no_record_is_lost_whatever_ends_owners(
    owners: list[tuple[int, set[int], bool]],
) -> None:
    """Every record below a committed offset was finished, and finished ones alone are skipped."""
    committed: Committed | None = Committed(0)
    finished: set[int] = set()
    for delivered, done, is_clean in owners:
        assert committed is not None
        progress, before = next_owner(committed), set(finished)
        for offset in range(committed.offset, committed.offset + delivered):
            count = progress.deliver(offset)
            assert (count is None) == (offset in before)
            if count is not None and offset in done:
                finished.add(offset)
                progress.fresh.append(offset)
            if offset % 3 == 0:
                progress.to_commit(reserves=3)
        committed = progress.to_commit(reserves=3, is_open=not is_clean)
        assert committed is not None
        assert finished.issuperset(range(committed.offset))


def test_below_a_truncation_finished_records_stay_finished_and_others_run_again() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in range(10, 16):
        progress.deliver(offset)
    progress.fresh.extend((10, 12))
    after = next_owner(commit(progress))  # The process has died.
    for offset in range(11, 16):
        after.deliver(offset)
    after.fresh.append(14)
    below = after.below(13)
    # 11 died with its process; 12 is finished; 13 and above are other records.
    assert [below.deliver(offset) for offset in range(11, 16)] == [2, None, 1, 1, 1]
    assert commit(below).offset == 11
    below.fresh.append(11)
    assert commit(below, is_open=False) == (13, "")


def test_below_the_lowest_unfinished_record_nothing_is_kept() -> None:
    progress = PartitionProgress(10, NOTHING)
    for offset in range(10, 14):
        progress.deliver(offset)
    progress.fresh.extend((10, 12))
    commit(progress)
    below = progress.below(4)
    assert [below.deliver(offset) for offset in range(4, 14)] == [1] * 10
