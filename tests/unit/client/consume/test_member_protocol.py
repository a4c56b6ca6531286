"""The bytes that members of a classic group exchange, read by another library, too."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from sharegroup.client.consume.assignors import MemberSubscription
from sharegroup.client.consume.member_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InconsistentGroupProtocol

OWNED = frozenset({TopicPartition("a", 2), TopicPartition("a", 0), TopicPartition("b", 1)})


def test_subscription_survives_the_wire() -> None:
    sent = encode_subscription(("b", "a"), OWNED, generation=7, rack="r1")
    assert decode_subscription(sent, "i-1") == MemberSubscription(
        frozenset({"a", "b"}), OWNED, 7, "i-1"
    )


def test_subscription_of_version_0_is_read() -> None:
    sent = ConsumerProtocolMemberMetadata(0, ["t"], b"").encode()
    assert decode_subscription(sent, None) == MemberSubscription(frozenset({"t"}))


def test_another_client_reads_the_subscription_and_the_assignment() -> None:
    sent = encode_subscription(("b", "a"), OWNED, generation=7, rack=None)
    assert ConsumerProtocolMemberMetadata.decode(sent).subscription == ["a", "b"]
    read = ConsumerProtocolMemberAssignment.decode(encode_assignment(OWNED))
    assert read.assignment == [("a", [0, 2]), ("b", [1])]


def test_assignment_survives_the_wire() -> None:
    assert decode_assignment(encode_assignment(OWNED)) == OWNED
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("sent", [b"", b"\0", b"\0\1\0\0\0\5ab"])
def test_malformed_subscription_is_refused(sent: bytes) -> None:
    with pytest.raises(InconsistentGroupProtocol, match="can't be decoded"):
        decode_subscription(sent, None)
