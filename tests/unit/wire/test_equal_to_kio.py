"""Our decoder and encoder agree with kio's on valid messages of every class that is served."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from kio.schema.request_header.v1 import RequestHeader as RequestHeader1
from kio.schema.request_header.v2 import RequestHeader as RequestHeader2
from kio.schema.response_header.v0 import ResponseHeader as ResponseHeader0
from kio.schema.response_header.v1 import ResponseHeader as ResponseHeader1
from kio.serial import entity_reader

from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode
from tests.unit.wire.messages import by_kio, class_id, every_class, messages, random_message

HEADERS = [RequestHeader1, RequestHeader2, ResponseHeader0, ResponseHeader1]
CLASSES = every_class()
MESSAGES_OF_EACH = 12


@pytest.mark.parametrize("cls", CLASSES + HEADERS, ids=class_id)
def test_random_messages_are_encoded_and_decoded_as_by_kio(cls):
    dice = random.Random(class_id(cls))
    for _ in range(MESSAGES_OF_EACH):
        message = random_message(cls, dice)
        written = by_kio(message)
        assert encode(message) == written
        assert decode(cls, written) == (message, len(written))
        assert decode(cls, memoryview(b"12" + written + b"345"), 2) == (message, 2 + len(written))
        by_kio_read, _ = entity_reader(cls)(written, 0)
        assert by_kio_read == message


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_drawn_messages_are_encoded_and_decoded_as_by_kio(data):
    message = data.draw(st.sampled_from(CLASSES).flatmap(messages))
    written = by_kio(message)
    assert encode(message) == written
    assert decode(type(message), written) == (message, len(written))
    assert entity_reader(type(message))(written, 0)[0] == message
