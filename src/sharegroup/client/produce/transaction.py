"""Transaction: a block of code whose records and offsets are committed together, or not at all."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Protocol, Self

from sharegroup.client.records import ConsumerGroupMetadata, IllegalStateError, Offsets
from sharegroup.errors import KafkaError, ProducerFenced

log = logging.getLogger(__name__)


class TransactionalProducer(Protocol):
    """The methods of a Producer that a Transaction calls."""

    async def begin_transaction(self) -> None: ...
    async def commit_transaction(self) -> None: ...
    async def abort_transaction(self) -> None: ...
    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None: ...
    def is_in_transaction(self) -> bool: ...


class Transaction:
    """One transaction: it is committed when its block ends, and aborted when the block raises.

    `Producer.transaction` makes it.
    """

    __slots__ = ("_is_ended", "_producer")

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._is_ended = False

    async def __aenter__(self) -> Self:
        if self._is_ended:
            raise IllegalStateError("this transaction has ended; begin another one")
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self._producer.commit_transaction()
        except KafkaError as failure:
            await self._abort_after(failure)
            raise

    async def send_offsets(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        """Commit offsets of a consumer group with this transaction."""
        await self._producer.send_offsets_to_transaction(offsets, group_metadata)

    async def abort(self) -> None:
        """Abort now, without an error; the block may go on, but no longer send."""
        self._is_ended = True
        await self._producer.abort_transaction()

    async def _abort_after(self, error: BaseException) -> None:
        """Abort unless the producer has failed for ever; ``error`` is the one that is raised."""
        if not self._producer.is_in_transaction():
            return
        try:
            await self._producer.abort_transaction()
        except ProducerFenced as fenced:
            if isinstance(error, KafkaError):
                # The fenced producer's records failed for this very reason.
                raise fenced from error
            error.add_note(f"this producer is fenced: {fenced}")
        except KafkaError as failure:
            # The coordinator aborts the transaction at its timeout, so the first error counts.
            log.info("event=transaction.abort_failed error=%r", failure)
            error.add_note(f"aborting the transaction failed, too: {failure!r}")
