"""Share session epochs and what a request says about partitions."""

from uuid import UUID

import pytest

from sharegroup.client.share.session.acknowledgements import AcknowledgementBatch
from sharegroup.client.share.session.share_requests import EPOCH_MAX, NodeSession
from sharegroup.ids import TopicId, TopicIdPartition

A, B, C = (TopicIdPartition(TopicId(UUID(int=1)), index) for index in range(3))
ONE_ACCEPT = (AcknowledgementBatch(0, 0, (1,)),)


def opened(*partitions: TopicIdPartition) -> NodeSession:
    session = NodeSession()
    session.fetch(partitions, {})
    session.answered()
    return session


def test_the_first_request_opens_with_all_partitions() -> None:
    session = NodeSession()
    request = session.fetch((A, B), {})
    assert (request.epoch, request.named, request.forgotten) == (0, (A, B), ())


def test_every_answer_raises_the_epoch() -> None:
    session = opened(A)
    epochs = []
    for _ in range(3):
        epochs.append(session.fetch((A,), {}).epoch)
        session.answered()
    assert epochs == [1, 2, 3]


def test_epoch_after_the_largest_is_one() -> None:
    session = opened(A)
    session._epoch = EPOCH_MAX  # Sending two thousand million requests would take too long.
    session.answered()
    assert session.epoch == 1


def test_only_changes_are_named() -> None:
    session = opened(A, B)
    assert session.fetch((A, B), {}).named == ()
    session.answered()
    request = session.fetch((B, C), {})
    assert (request.named, request.forgotten) == ((C,), (A,))


def test_acknowledgements_name_their_partition() -> None:
    session = opened(A, B)
    request = session.fetch((A, B), {B: ONE_ACCEPT})
    assert (request.named, request.forgotten) == ((B,), ())


def test_acknowledging_a_partition_that_is_not_fetched_does_not_add_it() -> None:
    session = opened(A)
    request = session.fetch((A,), {C: ONE_ACCEPT})
    assert (request.named, request.forgotten) == ((C,), (C,))


def test_a_revoked_partition_is_forgotten_with_its_last_acknowledgements() -> None:
    session = opened(A, B)
    request = session.fetch((A,), {B: ONE_ACCEPT})
    assert (request.named, request.forgotten) == ((B,), (B,))


def test_a_lost_session_opens_again_with_all_partitions() -> None:
    session = opened(A, B)
    session.lose()
    assert not session.is_open
    request = session.fetch((A, B), {})
    assert (request.epoch, request.named) == (0, (A, B))


def test_the_opening_request_carries_no_acknowledgements() -> None:
    with pytest.raises(AssertionError):
        NodeSession().fetch((A,), {A: ONE_ACCEPT})
