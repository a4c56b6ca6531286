"""Error codes as messages hold them, and Kafka's names for them.

Kafka 4.4 has codes that kio does not know.  In messages they are plain numbers, and their names are
those of our classes.
"""

from __future__ import annotations

from typing import cast

from kio.schema.errors import ErrorCode

from sharegroup.errors import KafkaError

ERROR_CODES: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
"""kio's error codes by number."""

_KAFKAS_NAMES = {int(code.value): code.name.upper() for code in ErrorCode}


def wire_error_code(code: int) -> ErrorCode:
    """Return an error code as messages hold it; a code that kio does not know stays a number."""
    return cast("ErrorCode", ERROR_CODES.get(code, code))


def code_name(error: type[KafkaError]) -> str:
    """Return Kafka's name of an error code, such as NOT_LEADER_OR_FOLLOWER."""
    if error.code in _KAFKAS_NAMES:
        return _KAFKAS_NAMES[error.code]
    return "".join(
        f"_{letter}" if letter.isupper() and index else letter.upper()
        for index, letter in enumerate(error.__name__)
    )
