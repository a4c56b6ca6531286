"""Requests for a reply, and replies: what is in the headers of their records.

    request    sharegroup-reply: <partition>/<process>.<number>/<group>
    reply      key: <process>.<number>      value: what the handler returned
               sharegroup-outcome: succeeded | failed, and for a failure its class, text and reason

A request names no topic: a worker replies only to the topic of its application
(`declarations.replies`).  It names the group of the handler that is asked, because other groups may
read its topic, and reply to requests of their own.

Any producer of a topic can write such headers, so all are validated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.worker.declarations.checks import GROUP_CHARACTERS_MAX
from sharegroup.worker.declarations.replies import PARTITIONS
from sharegroup.worker.ports import Header
from sharegroup.worker.results.result import Result, ResultState

REPLY_HEADER = "sharegroup-reply"
_OUTCOME = "sharegroup-outcome"
_CLASS = "sharegroup-error"
_TEXT = "sharegroup-message"
_REASON = "sharegroup-reason"
_ATTEMPTS = "sharegroup-attempts"
_TEXT_BYTES_MAX = 4 * 1024
_NUMBER_MAX = 2**31
REPLY_BYTES_MAX = 900 * 1024
"""A larger return value is not sent, because a broker takes records of 1 MiB by default."""
TOO_LARGE = "reply-too-large"
_ASK_ID = re.compile(rb"[0-9a-f]{16}\.[0-9]{1,15}")
_ADDRESS = re.compile(
    rb"([0-9]{1,4})/(%b)(?:/([A-Za-z0-9._-]{1,%d}))?" % (_ASK_ID.pattern, GROUP_CHARACTERS_MAX)
)


class ReplyAddress(NamedTuple):
    """Where a reply goes: a partition of the topic for replies, and the id of the request."""

    partition: int
    ask_id: str

    def header(self, group: str) -> Header:
        """Return the header of a request to a handler of this group."""
        return REPLY_HEADER, f"{self.partition}/{self.ask_id}/{group}".encode("ascii")


class Reply(NamedTuple):
    """A reply as it was read; a failure has no value."""

    ask_id: str
    state: ResultState
    value: bytes | None
    error_class: str = ""
    error_text: str = ""
    reason: str = ""
    attempts: int = 0


def address_of(headers: Sequence[Header], group: str) -> ReplyAddress | None:
    """Return where the reply of a group to a record goes.

    None if the record asks for no reply, asks another group, or has a header that is not valid.  A
    request that names no group is for all groups.
    """
    for name, content in reversed(headers):
        if name == REPLY_HEADER:
            match = None if content is None else _ADDRESS.fullmatch(content)
            if match is None or int(match[1]) >= PARTITIONS:
                return None
            if match[3] not in (None, group.encode()):
                return None
            return ReplyAddress(int(match[1]), match[2].decode("ascii"))
    return None


def reply_of(result: Result[bytes]) -> tuple[bytes | None, tuple[Header, ...]]:
    """Return the value and the headers of the reply with this result."""
    state, value = result.state, result.value
    name, text, reason = result.error_class, result.error_text, result.reason
    if value is not None and len(value) > REPLY_BYTES_MAX:
        state, reason = ResultState.FAILED, TOO_LARGE
        text = f"the handler returned {len(value)} bytes; expected up to {REPLY_BYTES_MAX}"
    failed = state is not ResultState.SUCCEEDED
    headers: list[Header] = [
        (_OUTCOME, str(state).encode("ascii")),
        (_ATTEMPTS, str(min(result.attempts, _NUMBER_MAX)).encode("ascii")),
    ]
    if failed:
        texts = ((_CLASS, name), (_TEXT, text), (_REASON, reason))
        headers += [(title, _encoded(content)) for title, content in texts]
    return None if failed else value, tuple(headers)


def parsed_reply(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> Reply:
    """Return the reply in a record; raises ValueError if there is none."""
    if key is None or _ASK_ID.fullmatch(key) is None:
        raise ValueError(f"expected the id of a request as key, found {key!r:.80}")
    contents = {name: content or b"" for name, content in headers}
    state = ResultState(contents.get(_OUTCOME, b"").decode("ascii", "replace"))
    if state is ResultState.RETRYING:
        raise ValueError(f"expected a final outcome in {_OUTCOME}, found {state}")
    attempts = contents.get(_ATTEMPTS, b"")
    number = min(int(attempts), _NUMBER_MAX) if re.fullmatch(rb"[0-9]{1,10}", attempts) else 0
    error, text, reason = (_decoded(contents.get(title, b"")) for title in (_CLASS, _TEXT, _REASON))
    return Reply(key.decode("ascii"), state, value, error, text, reason, number)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")[:_TEXT_BYTES_MAX]


def _decoded(content: bytes) -> str:
    return content[:_TEXT_BYTES_MAX].decode("utf-8", "replace")
