"""Headers: what kio writes is read, what we write is what kio writes, lies are refused."""

from __future__ import annotations

import pytest
from kio.schema.request_header.v1 import RequestHeader as RequestHeader1
from kio.schema.request_header.v2 import RequestHeader as RequestHeader2
from kio.schema.response_header.v1 import ResponseHeader

from sharegroup.wire.codec.decoder import DecodeError
from sharegroup.wire.codec.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from tests.unit.wire.messages import by_kio


@pytest.mark.parametrize("client_id", [None, "", "grün"])
@pytest.mark.parametrize(
    ("version", "header_class"), [(3, RequestHeader1), (9, RequestHeader2), (13, RequestHeader2)]
)
def test_request_header_of_each_version_survives_a_round_trip(version, header_class, client_id):
    header = header_class(
        request_api_key=0, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    written = by_kio(header)
    assert encode_request_header(0, version, -7, client_id) == written
    frame = memoryview(written + b"body")
    assert decode_request_header(frame) == RequestHeader(0, version, -7, client_id, len(written))


def test_tagged_fields_of_a_flexible_header_are_skipped():
    header = b"\0\x4e\0\1\0\0\0\5\xff\xff" + b"\x01\x00\x03abc"
    assert decode_request_header(header + b"body") == RequestHeader(78, 1, 5, None, 16)


def test_header_of_an_api_that_is_not_served_is_read_as_far_as_anyone_can():
    assert decode_request_header(b"\x03\xe7\0\1\0\0\0\5\0\1c") == RequestHeader(999, 1, 5, "c", 11)


def test_api_versions_of_the_future_still_has_a_header():
    header = decode_request_header(b"\0\x12\0\x63\0\0\0\5\0\1c\0")
    assert header == RequestHeader(18, 99, 5, "c", 12)


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"\0\0\0\3\0\0\0\1\0", "RequestHeader: expected 10 bytes or more, found 9"),
        (b"\0\0\0\3\0\0\0\1\0\5abc", "client_id at byte 10: length 5, but 3 bytes are left"),
        (b"\0\0\0\3\0\0\0\1\xff\xfe", "client_id at byte 8: length -2"),
        (b"\0\0\0\3\0\0\0\1\0\1\xff", "client_id at byte 10: expected UTF-8"),
        (b"\0\0\0\x09\0\0\0\1\0\0", "tags at byte 10: the message ends"),
        (
            b"\0\0\0\x09\0\0\0\1\0\0\x01\x00\x7f",
            "tags at byte 10: tag 0 ends after the end of the message",
        ),
        (b"\0\0\0\x09\0\0\0\1\0\0" + b"\xff" * 6, "tags at byte 10: expected a varint"),
    ],
)
def test_malformed_request_header_is_refused(frame, problem):
    with pytest.raises(DecodeError) as caught:
        decode_request_header(frame)
    assert problem in str(caught.value)


def test_response_header_is_read_with_and_without_tags():
    written = by_kio(ResponseHeader(correlation_id=-9))
    assert decode_response_header(written + b"x", 1) == (-9, 5)
    assert decode_response_header(b"\0\0\0\x09", 0) == (9, 4)


def test_response_header_that_is_cut_is_refused():
    with pytest.raises(DecodeError, match="expected 4 bytes or more, found 3"):
        decode_response_header(b"\0\0\0", 0)
    with pytest.raises(DecodeError, match="the message ends"):
        decode_response_header(b"\0\0\0\1", 1)
