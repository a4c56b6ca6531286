"""The mark of the broker's dead letters: what Produce refuses, and what readers see (ADR 0036)."""

from __future__ import annotations

import pytest

from sharegroup.errors import InvalidRecord
from sharegroup.wire.batches.batches import LETTER_PRODUCER_ID, parse_header, validate
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch

RECORDS = [SimpleRecord(b"k", b"v", 1, (("h", b"x"),))]


def marked(producer_id: int = LETTER_PRODUCER_ID, sequence: int = -1) -> bytearray:
    return encode_batch(RECORDS, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize(
    ("producer_id", "sequence"),
    [(LETTER_PRODUCER_ID, -1), (LETTER_PRODUCER_ID, 0), (7, -1), (7, -2), (-2, -1), (-2, 0)],
)
def test_batch_that_resembles_the_mark_is_refused_from_producers(
    producer_id: int, sequence: int
) -> None:
    with pytest.raises(InvalidRecord):
        validate(marked(producer_id, sequence))


@pytest.mark.parametrize(("producer_id", "sequence"), [(7, 0), (-1, -1)])
def test_batches_of_producers_have_no_mark(producer_id: int, sequence: int) -> None:
    (header,) = validate(marked(producer_id, sequence))
    assert not header.is_letter


def test_marked_batch_has_ordinary_records() -> None:
    batch = marked()
    assert parse_header(batch).is_letter
    (record,) = decode_records(bytes(batch), check_crc=True)
    assert (record.key, record.value, record.headers) == (b"k", b"v", [("h", b"x")])
