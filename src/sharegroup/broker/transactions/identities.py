"""The identity of a producer, and the errors that older clients know."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.errors import InvalidProducerEpoch, KafkaError, ProducerFenced


class ProducerIdAndEpoch(NamedTuple):
    """A producer in one of its epochs; only the newest epoch of a producer id may write."""

    producer_id: int
    epoch: int


def for_older_client(error: KafkaError, *, knows_fenced: bool) -> KafkaError:
    """Return the error to send: clients from before PRODUCER_FENCED know INVALID_PRODUCER_EPOCH."""
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return InvalidProducerEpoch(str(error))
    return error
