"""Records of a fetch answer: control batches, aborted transactions, and positions."""

from __future__ import annotations

import pytest

from sharegroup.client.consume.fetched_records import FetchedRecords
from sharegroup.client.fetch.aborted_transactions import AbortedTransaction, classified_batches
from sharegroup.client.records import TopicPartition
from sharegroup.errors import CorruptMessage, UnreadableBatch
from sharegroup.wire.batches.batches import stamp
from sharegroup.wire.batches.compression import CODECS
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.attacks.batches import misread_batch

WHERE = TopicPartition("orders", 3)


def batch(
    first: int, *values: bytes, producer: int = -1, transaction: bool = False, epoch: int = 4
) -> bytes:
    made = encode_batch(
        [SimpleRecord(None, value, 1_000, [("h", b"x")]) for value in values],
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=transaction,
    )
    stamp(made, 0, base_offset=first, leader_epoch=epoch)
    return bytes(made)


def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
    made = encode_marker(
        is_commit=is_commit, producer_id=producer, producer_epoch=0, timestamp=1_000
    )
    stamp(made, 0, base_offset=offset, leader_epoch=4)
    return bytes(made)


def fetched(data: bytes, offset: int = 0, *aborted: AbortedTransaction) -> FetchedRecords:
    return FetchedRecords(WHERE, offset, data, aborted, decompressed_bytes_max=1 << 20)


def all_values(records: FetchedRecords) -> list[bytes]:
    found = []
    while taken := records.take(10):
        found += [record.value for record in taken]
    return found


LOG = b"".join(
    (
        batch(0, b"7a", producer=7, transaction=True),
        batch(1, b"8a", producer=8, transaction=True),
        batch(2, b"plain", producer=7),
        batch(3, b"7b", producer=7, transaction=True),
        marker(4, 7, is_commit=False),
        batch(5, b"7c", b"7d", producer=7, transaction=True),
        marker(7, 8, is_commit=True),
        marker(8, 7, is_commit=True),
    )
)


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    records = fetched(LOG, 0, AbortedTransaction(7, 0))
    assert all_values(records) == [b"8a", b"plain", b"7c", b"7d"]
    assert records.next_offset == records.end_offset == 9


def test_a_second_aborted_transaction_of_a_producer_is_left_out_too() -> None:
    log = LOG + batch(9, b"7e", producer=7, transaction=True) + marker(10, 7, is_commit=False)
    aborted = AbortedTransaction(7, 9), AbortedTransaction(7, 0)
    assert all_values(fetched(log, 0, *aborted)) == [b"8a", b"plain", b"7c", b"7d"]


def test_without_a_list_of_aborted_transactions_only_markers_are_left_out() -> None:
    assert all_values(fetched(LOG)) == [b"7a", b"8a", b"plain", b"7b", b"7c", b"7d"]
    assert [item.is_delivered for item in classified_batches(LOG, ())].count(False) == 3


def test_an_answer_begins_within_a_batch() -> None:
    records = fetched(batch(10, b"a", b"b", b"c"), 12)
    assert [(record.offset, record.value) for record in records.take(5)] == [(12, b"c")]


def test_the_position_follows_the_records_taken() -> None:
    records = fetched(batch(0, b"a", b"b", b"c") + batch(3, b"d", epoch=6))
    assert [record.offset for record in records.take(2)] == [0, 1]
    assert (records.next_offset, records.next_epoch) == (2, 4)
    assert [record.offset for record in records.take(2)] == [2]
    assert records.next_offset == 3
    assert [record.leader_epoch for record in records.take(2)] == [6]
    assert records.is_empty
    assert (records.next_offset, records.next_epoch) == (4, 6)


def test_only_control_batches_move_the_position() -> None:
    records = fetched(marker(5, 7, is_commit=True), 5)
    assert records.take(1) == []
    assert records.next_offset == 6


def test_records_can_be_given_back() -> None:
    records = fetched(batch(0, b"a", b"b", b"c"))
    taken = records.take(3)
    records.back_to(taken[1])
    assert records.next_offset == 1
    assert all_values(records) == [b"b", b"c"]


def flipped(data: bytes) -> bytes:
    """A batch whose checksum does not match."""
    return data[:65] + bytes([data[65] ^ 0xFF]) + data[66:]


def taken(records: FetchedRecords, *, columns: bool) -> list[bytes]:
    """The values of the next take."""
    if not columns:
        return [record.value for record in records.take(9)]
    batch = records.take_columns(9)
    return [] if batch is None else batch.column("value").to_pylist()


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_an_unreadable_batch_is_a_range_to_seek_past(columns: bool) -> None:
    bad = flipped(batch(1, b"b", b"c"))
    data = batch(0, b"a") + bad + batch(3, b"d")
    records = fetched(data)
    assert taken(records, columns=columns) == [b"a"]
    assert records.next_offset == 1
    for _ in range(2):  # It is not passed.
        with pytest.raises(
            UnreadableBatch,
            match=r"'orders' partition 3 offsets 1 to 2 cannot be read: .*; seek to 3 to go on",
        ) as raised:
            records.take_columns(9) if columns else records.take(9)
        error = raised.value
        assert (error.topic, error.partition, error.first, error.end) == ("orders", 3, 1, 3)
        assert error.batch == bad
        assert records.next_offset == 1
    assert taken(fetched(data, 3), columns=columns) == [b"d"]
    with pytest.raises(UnreadableBatch, match="offsets 2 to 2 cannot be read"):
        taken(fetched(data, 2), columns=columns)


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_an_unreadable_marker_of_an_aborted_transaction_is_a_range_too(columns: bool) -> None:
    data = (
        batch(0, b"a", producer=7, transaction=True)
        + flipped(marker(1, 7, is_commit=False))
        + batch(2, b"b")
    )
    records = fetched(data, 0, AbortedTransaction(7, 0))
    with pytest.raises(UnreadableBatch, match=r"offsets 1 to 1 cannot be read.*seek to 2"):
        taken(records, columns=columns)
    assert taken(fetched(data, 2), columns=columns) == [b"b"]


def test_an_unreadable_batch_of_an_aborted_transaction_is_left_out_like_its_others() -> None:
    data = flipped(batch(0, b"a", producer=7, transaction=True)) + batch(1, b"b")
    assert all_values(fetched(data, 0, AbortedTransaction(7, 0))) == [b"b"]


def test_columns_have_the_same_records() -> None:
    pytest.importorskip("pyarrow")
    records = fetched(LOG + batch(9, b"z", epoch=9), 0, AbortedTransaction(7, 0))
    first = records.take_columns(3)
    assert first is not None
    assert first.column("value").to_pylist() == [b"8a", b"plain", b"7c"]
    assert records.next_offset == 6
    second = records.take_columns(3)
    assert second is not None
    assert second.column("offset").to_pylist() == [6, 9]
    assert second.column("leader_epoch").to_pylist() == [4, 9]
    assert second.column("topic").to_pylist() == ["orders", "orders"]
    assert second.column("headers").to_pylist()[0] == [{"key": "h", "value": b"x"}]
    assert records.next_offset == records.end_offset == 10
    assert (records.next_epoch, records.is_empty) == (9, True)


def test_columns_and_records_may_alternate() -> None:
    pytest.importorskip("pyarrow")
    records = fetched(batch(0, b"a", b"b", b"c", b"d"))
    assert [record.value for record in records.take(1)] == [b"a"]
    columns = records.take_columns(1)
    assert columns is not None
    assert columns.column("value").to_pylist() == [b"b"]
    assert [record.value for record in records.take(1)] == [b"c"]
    assert records.next_offset == 3


def large(first: int, *sizes: int) -> bytes:
    """A batch of records of these sizes, in far fewer bytes."""
    made = encode_batch(
        [SimpleRecord(None, bytes(size), 1_000) for size in sizes], codec=CODECS["zstd"]
    )
    stamp(made, 0, base_offset=first, leader_epoch=4)
    return bytes(made)


LIMIT = 1 << 20


def test_a_large_batch_is_taken_in_pieces_and_the_position_follows() -> None:
    records = fetched(large(0, *[LIMIT // 2] * 10) + batch(10, b"behind"))
    found, positions = [], []
    while taken := records.take(10):
        found += [record.offset for record in taken]
        positions.append(records.next_offset)
    assert found == list(range(11))
    assert len(positions) > 4
    assert positions == sorted(positions)
    assert records.next_offset == 11


@pytest.mark.parametrize("columns", [False, True])
def test_a_record_that_is_too_large_costs_no_other(columns: bool) -> None:
    data = batch(0, b"before") + large(1, 5, 2 * LIMIT, 6) + batch(4, b"behind")
    records, found, refused = fetched(data), [], []
    while True:
        try:
            if columns:
                table = records.take_columns(10)
                if table is None:
                    break
                found += table.column("offset").to_pylist()
            else:
                taken = records.take(10)
                if not taken:
                    break
                found += [record.offset for record in taken]
        except CorruptMessage as error:
            refused.append(str(error))
            records = fetched(data, records.next_offset + 1)
    assert found == [0, 1, 3, 4]
    (text,) = refused
    assert text.startswith(
        "topic 'orders' partition 3 offsets 2 to 2 cannot be read: the record at offset 2 has "
    )
    assert text.endswith("; seek to 3 to go on behind them")


def test_columns_before_a_corrupt_batch_are_taken_first() -> None:
    damaged = bytearray(batch(2, b"c"))
    damaged[-1] ^= 1
    records = fetched(batch(0, b"a", b"b") + bytes(damaged) + batch(3, b"d"))
    first = records.take_columns(10)
    assert first is not None
    assert (first.column("value").to_pylist(), records.next_offset) == ([b"a", b"b"], 2)
    with pytest.raises(
        CorruptMessage, match=r"partition 3 offsets 2 to 2 cannot be read: .*; seek to 3"
    ):
        records.take_columns(10)


@pytest.mark.parametrize("claimed", [5, 900_000])
def test_record_that_the_codec_misreads_moves_no_position(claimed: int) -> None:
    odd = bytearray(misread_batch(claimed))
    stamp(odd, 0, base_offset=1, leader_epoch=4)
    records = fetched(batch(0, b"a") + bytes(odd) + batch(2, b"b", b"c"))
    positions = []
    while taken := records.take(1):
        positions.append((taken[0].offset, taken[0].value, records.next_offset))
    assert positions == [(0, b"a", 1), (1, b"honest", 2), (2, b"b", 3), (3, b"c", 4)]
