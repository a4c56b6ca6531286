"""The copy that a redrive makes of a letter, as its reader decodes it."""

from __future__ import annotations

from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.redrive_copies import sent_back_content
from sharegroup.wire.batches.records import DecodedRecord, decode_records, encode_contents
from sharegroup.worker.ports import Header


def sent_back_record(letter: Letter, redrive_id: str) -> DecodedRecord:
    """Return the record of the copy, alone in its batch."""
    (record,) = decode_records(encode_contents([(sent_back_content(letter, redrive_id), 8)]))
    return record


def sent_back_headers(letter: Letter, redrive_id: str) -> list[Header]:
    """Return the headers of the copy."""
    return sent_back_record(letter, redrive_id).headers
