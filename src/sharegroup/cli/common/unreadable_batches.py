"""Reports batches that a verb of the command line cannot read, and goes on without."""

from __future__ import annotations

from sharegroup.cli.common.output import complain
from sharegroup.client.fetch.record_reading import PartitionRange
from sharegroup.errors import KafkaError


class UnreadableBatches:
    """Prints a line for each batch that cannot be read; a verb that had one ends with code 1."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: PartitionRange, error: KafkaError) -> None:
        self.count += 1
        topic, partition = batch.where
        complain(
            f"topic {topic!r} partition {partition} offsets {batch.first} to {batch.end - 1} "
            f"cannot be read and are omitted: {error}"
        )

    @property
    def exit_code(self) -> int:
        """1 if a batch was omitted."""
        return 1 if self.count else 0
