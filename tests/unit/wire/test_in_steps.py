"""Messages that are decoded, converted and encoded in steps are the same as without steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sharegroup.steps import STEP_ELEMENTS, Steps, run_to_end
from sharegroup.wire.codec.apis import APIS, newest_request_class, request_class, response_class
from sharegroup.wire.codec.convert import convert_steps, empty, upgrade
from sharegroup.wire.codec.decoder import DecodeError, decode, decode_steps
from sharegroup.wire.codec.encoder import (
    PARTS_MAX,
    EncodeError,
    encode,
    encode_response_chunks,
    encode_response_steps,
)
from tests.faults.tokens import full_message

VERSIONS = [
    (api.key, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1)
]


def large_metadata(partitions: int) -> MetadataResponse:
    partition = replace(full_message(MetadataResponsePartition), isr_nodes=(1, 2))
    topic = replace(full_message(MetadataResponseTopic), partitions=(partition,) * partitions)
    return replace(full_message(MetadataResponse), topics=(topic, topic))


def count(steps: Steps[Any]) -> int:
    number = 0
    for _ in steps:
        number += 1
    return number


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_requests_are_decoded_equally_in_steps(key: int, version: int) -> None:
    cls = request_class(key, version)
    for message in (full_message(cls), empty(cls)):
        raw = encode(message)
        assert run_to_end(decode_steps(cls, raw)) == decode(cls, raw)[0]
    raw = encode(full_message(cls))
    if raw:  # ListGroups v0 has no fields.
        with pytest.raises(DecodeError):
            run_to_end(decode_steps(cls, raw[:-1]))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_responses_are_encoded_equally_in_steps(key: int, version: int) -> None:
    cls = response_class(key, version)
    for message in (full_message(cls), empty(cls)):
        chunks = run_to_end(encode_response_steps(7, message))
        assert chunks == encode_response_chunks(7, message)


def test_requests_are_converted_equally_in_steps() -> None:
    for key in (1, 2, 3):
        oldest = full_message(request_class(key, APIS[key].oldest))
        newest = newest_request_class(key)
        assert run_to_end(convert_steps(oldest, newest)) == upgrade(oldest, newest)


def test_long_messages_make_a_step_at_least_every_64_elements() -> None:
    message = large_metadata(PARTS_MAX)
    steps = 2 * PARTS_MAX // STEP_ELEMENTS
    assert count(encode_response_steps(7, message)) == steps
    assert count(convert_steps(message, response_class(3, 9))) == steps
    raw = encode(message)
    assert count(decode_steps(MetadataResponse, raw)) == steps
    assert run_to_end(decode_steps(MetadataResponse, raw)) == message
    assert run_to_end(encode_response_steps(7, message)) == encode_response_chunks(7, message)


def test_errors_in_steps_name_the_field() -> None:
    message = large_metadata(3)
    broken = replace(message.topics[0].partitions[0], partition_index="three")
    topic = replace(message.topics[0], partitions=(broken,))
    with pytest.raises(EncodeError, match=r"topics\[0\]\.partitions\[0\]\.error_code\+partition_i"):
        run_to_end(encode_response_steps(7, replace(message, topics=(topic,))))
