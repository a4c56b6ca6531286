"""The delay of released records in both requests: without it they have the bytes of Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from kio.schema.share_acknowledge.v2 import request as kafka_acknowledge
from kio.schema.share_fetch.v2 import request as kafka_fetch

from sharegroup.wire.codec.convert import upgrade
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode
from sharegroup.wire.messages import share_acknowledge_v2, share_fetch_v2
from tests.unit.wire.messages import messages as messages_of


@given(messages_of(kafka_acknowledge.ShareAcknowledgeRequest))
def test_acknowledgement_without_a_delay_has_the_bytes_of_kafkas_schema(request: Any) -> None:
    ours = upgrade(request, share_acknowledge_v2.ShareAcknowledgeRequest)
    assert encode(ours) == encode(request)


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [(share_acknowledge_v2, kafka_acknowledge), (share_fetch_v2, kafka_fetch)],
    ids=["ShareAcknowledge", "ShareFetch"],
)
def test_kafkas_schema_skips_the_delay(ours: Any, kafkas: Any) -> None:
    batch = ours.AcknowledgementBatch(
        first_offset=5, last_offset=6, acknowledge_types=(2,), redelivery_delay_ms=30_000
    )
    plain = kafkas.AcknowledgementBatch(first_offset=5, last_offset=6, acknowledge_types=(2,))
    tag = bytes.fromhex("01 904e 04 00007530")
    assert encode(batch) == encode(plain)[:-1] + tag
    assert decode(kafkas.AcknowledgementBatch, encode(batch)) == (plain, len(encode(batch)))
    assert decode(ours.AcknowledgementBatch, encode(batch))[0] == batch
