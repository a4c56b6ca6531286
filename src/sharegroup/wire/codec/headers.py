"""Request and response headers, decoded and encoded by hand because every request has one.

A request header is key, version, correlation id and client id; from the API's first flexible
version on, tagged fields follow. The client id has the old nullable string format in every version.
A response header is the correlation id, and an empty set of tagged fields if the API is flexible;
ApiVersions never has them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sharegroup.wire.codec.apis import APIS, api_of
from sharegroup.wire.codec.decoder import Buffer, DecodeError, Malformed, skip_tags

_request_header = Struct(">hhih")


class RequestHeader(NamedTuple):
    """The header of a request; ``body_position`` is where its message starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Return the header of a request frame, even of an API or a version that is not served.

    A version above the newest counts as flexible if the newest is; its message is not decoded.
    """
    size = len(frame)
    if size < _request_header.size:
        raise DecodeError(f"RequestHeader: expected 10 bytes or more, found {size}")
    key, version, correlation_id, length = _request_header.unpack_from(frame)
    position = _request_header.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > size:
            raise DecodeError(
                f"RequestHeader.client_id at byte {position}: length {length}, "
                f"but {size - position} bytes are left"
            )
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            raise DecodeError(
                f"RequestHeader.client_id at byte {position}: expected UTF-8"
            ) from None
        position = end
    elif length != -1:
        raise DecodeError(f"RequestHeader.client_id at byte {position - 2}: length {length}")
    api = APIS.get(key)
    # The header of an unknown API is read without tags: nothing says whether it has them.
    if api is not None and version >= api.flexible:
        if position < size and frame[position] == 0:
            position += 1  # The usual case: no tagged fields.
        else:
            position = _after_tags(frame, position, "RequestHeader")
    return RequestHeader(key, version, correlation_id, client_id, position)


def encode_request_header(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the bytes of a request header."""
    raw = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(raw)
    tags = b"\0" if version >= api_of(key).flexible else b""
    return _request_header.pack(key, version, correlation_id, length) + raw + tags


def decode_response_header(frame: Buffer, header_version: int) -> tuple[int, int]:
    """Return the correlation id and the message's position; see ``response_header_version``."""
    if len(frame) < 4:
        raise DecodeError(f"ResponseHeader: expected 4 bytes or more, found {len(frame)}")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    position = _after_tags(frame, 4, "ResponseHeader") if header_version == 1 else 4
    return correlation_id, position


def _after_tags(frame: Buffer, position: int, name: str) -> int:
    try:
        return skip_tags(frame, position, len(frame))
    except IndexError:
        raise DecodeError(f"{name}.tags at byte {position}: the message ends") from None
    except Malformed as error:
        raise DecodeError(f"{name}.tags at byte {position}: {error}") from None
