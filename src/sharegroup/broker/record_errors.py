"""The errors of single records, for which a batch is refused as a whole (KIP-467)."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.errors import InvalidRecord, InvalidTimestamp


class RecordError(NamedTuple):
    """A record by its position in the batch, counted from 0, and what is wrong with it."""

    position: int
    text: str


class RecordsWithoutKey(InvalidRecord):
    """Records of a batch have no key, but the topic is compacted."""

    def __init__(self, records: tuple[RecordError, ...]) -> None:
        super().__init__(
            "cleanup.policy=compact does not allow records without a key: found "
            f"{len(records)} of them, the first at position {records[0].position} of the batch"
        )
        self.records = records


class RecordsOutOfTime(InvalidTimestamp):
    """Timestamps of records are too far from the broker's time."""

    def __init__(self, text: str, records: tuple[RecordError, ...]) -> None:
        super().__init__(text)
        self.records = records


def errors_of_records(error: BaseException) -> tuple[RecordError, ...]:
    """Return the records that an error names; none for other errors."""
    return error.records if isinstance(error, RecordsWithoutKey | RecordsOutOfTime) else ()
