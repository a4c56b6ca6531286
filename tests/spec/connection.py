"""A connection of the spec's tests: requests as kio's dataclasses, one after another.

A request that the broker parks can be begun and finished apart, so that a test can say what
happens in between.
"""

from __future__ import annotations

from typing import Any

from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header
from tests.faults.raw_connection import RawConnection
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import readable

ANSWER_SECONDS_MAX = HANGING_SECONDS
"""Apache Kafka makes its internal topics while the first request waits."""

CLIENT_ID = "spec"


class Connection(RawConnection):
    """One socket; `ask` is `begin` and `finish`."""

    def __init__(self, port: int, client_id: str = CLIENT_ID) -> None:
        super().__init__(port, seconds=ANSWER_SECONDS_MAX)
        self._client_id = client_id

    def ask(self, message: Any, correlation_id: int = 1) -> Any:
        self.begin(message, correlation_id)
        return self.finish(message, correlation_id)

    def begin(self, message: Any, correlation_id: int = 1) -> None:
        """Send a request and go on."""
        self.send(b"".join(encode_request(correlation_id, self._client_id, message)))

    def finish(self, message: Any, correlation_id: int = 1) -> Any:
        """The answer to the request that was begun."""
        frame = self.answer()
        if frame is None:
            raise ConnectionResetError(f"no answer to {type(message).__name__}: closed")
        key, version = message.__api_key__, message.__version__
        came, position = decode_response_header(frame, response_header_version(key, version))
        assert came == correlation_id
        return decode(response_class(key, version), frame, position)[0]

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long: the request that was begun is parked."""
        return not readable([self.socket], seconds)
