"""The audit log: a line for each denial and each administrative request, with a rate limit.

    event=denied principal='User:eve' host=10.0.0.7 listener=SASL_SSL api=produce operation=WRITE
        resource=TOPIC:'orders'
    event=administered principal='User:ops' host=10.0.0.8 listener=SASL_SSL api=delete_topics
        subjects='orders'

A principal gets `LINES_PER_SECOND` lines of each kind in a second.  The others are counted, and a
line with ``event=audit_lines_suppressed`` says how many they were.  An administrative request is
logged when it may be carried out; the lines of the parts that it changes say what happened.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.core.security.principal import Author
from sharegroup.escaping import shortened
from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.wire.codec.apis import APIS

log = logging.getLogger(__name__)

LINES_PER_SECOND = 10
"""Number of lines of one kind about one principal in one second."""

PRINCIPALS_MAX = 1_000
"""Number of principals whose lines are counted apart; beyond it the oldest count is forgotten."""

REPORT_MS = 10_000
"""Milliseconds between two reports of suppressed lines."""

SUBJECTS_MAX = 20
"""Number of subjects of a request that a line names."""

TEXT_CHARACTERS_MAX = 200
"""Number of characters of a name in a line, with its escape sequences."""


@dataclass(slots=True)
class _Lines:
    """The lines about one principal in the present second, and those suppressed since a report."""

    second: int = -1
    count: int = 0
    suppressed: int = 0


class Origin(NamedTuple):
    """The peer that a line is about."""

    principal: str
    host: str
    listener: str

    @classmethod
    def of(cls, peer: Peer) -> Origin:
        """Return the origin of a peer with its present principal."""
        return cls(str(peer.principal), peer.host, peer.listener)


class _Kind(NamedTuple):
    """The lines of one kind about one principal."""

    event: str
    principal: str


class AuditLog:
    """Writes the audit lines of a broker, and counts denials by listener."""

    __slots__ = ("_clock", "_lines", "denials", "suppressed_count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[_Kind, _Lines] = {}
        self.denials = Counter[str]()
        """The number of denials by the name of the listener."""
        self.suppressed_count = 0

    def denied(
        self,
        origin: Origin,
        api_key: int | None,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> None:
        """Count a denial and log it; ``api_key`` is None outside of requests."""
        self.denials[origin.listener] += 1
        if self._may_log("denied", origin.principal):
            log.warning(
                "event=denied principal=%r host=%s listener=%s api=%s operation=%s resource=%s:%r",
                _short(origin.principal),
                origin.host,
                origin.listener,
                _api_name(api_key),
                operation.name,
                resource_type.name,
                _short(name),
            )

    def dead_letters_refused(self, user: Author, group_id: str, reason: str, records: int) -> None:
        """Log that the user of a group's dead letters may not write them."""
        principal = str(user.principal)
        if self._may_log("dead_letters_refused", principal):
            log.warning(
                "event=dead_letters_refused group=%r principal=%r host=%s records=%d reason=%r "
                "effect='the records are archived without dead letters'",
                _short(group_id),
                _short(principal),
                user.host,
                records,
                _short(reason),
            )

    def administered(self, peer: Peer, api_key: int, request: Any) -> None:
        """Log a request if it is an administrative one."""
        subjects_of = ADMINISTRATIVE.get(api_key)
        if subjects_of is None:
            return
        origin = Origin.of(peer)
        if not self._may_log("administered", origin.principal):
            return
        # One more than is shown, which tells whether there are more without counting them all.
        subjects = list(islice(subjects_of(request), SUBJECTS_MAX + 1))
        more = " and more" if len(subjects) > SUBJECTS_MAX else ""
        names = ",".join(_short(subject) for subject in subjects[:SUBJECTS_MAX])
        log.info(
            "event=administered principal=%r host=%s listener=%s api=%s subjects=%r",
            _short(origin.principal),
            origin.host,
            origin.listener,
            _api_name(api_key),
            names + more,
        )

    async def run(self) -> None:
        """Report suppressed lines regularly, until cancelled."""
        while True:
            await sleep_ms(self._clock, REPORT_MS)
            self.report()

    def report(self) -> None:
        """Log how many lines were suppressed since the last report."""
        for kind, lines in self._lines.items():
            _report(kind, lines)
        second = self._clock.now_ms() // 1_000
        # The counts of earlier seconds begin at 0 again anyway.
        self._lines = {kind: lines for kind, lines in self._lines.items() if lines.second == second}

    def _may_log(self, event: str, principal: str) -> bool:
        """Return whether another line fits into the present second; count it."""
        kind = _Kind(event, principal)
        lines = self._lines.get(kind)
        if lines is None:
            if len(self._lines) >= PRINCIPALS_MAX:
                oldest = next(iter(self._lines))
                _report(oldest, self._lines.pop(oldest))
            lines = self._lines[kind] = _Lines()
        second = self._clock.now_ms() // 1_000
        if lines.second != second:
            lines.second, lines.count = second, 0
        lines.count += 1
        if lines.count <= LINES_PER_SECOND:
            return True
        lines.suppressed += 1
        self.suppressed_count += 1
        return False


def _report(kind: _Kind, lines: _Lines) -> None:
    if lines.suppressed:
        log.log(
            # Requests that were carried out are news; denials are something to look into.
            logging.WARNING if kind.event == "denied" else logging.INFO,
            "event=audit_lines_suppressed kind=%s principal=%r count=%d",
            kind.event,
            _short(kind.principal),
            lines.suppressed,
        )
        lines.suppressed = 0


def _api_name(api_key: int | None) -> str:
    return "-" if api_key is None else APIS[api_key].snake_name


def _short(text: str) -> str:
    return shortened(text, TEXT_CHARACTERS_MAX)


def _topics(request: Any) -> Iterable[str]:
    return (topic.name for topic in request.topics)


def _deleted_topics(request: Any) -> Iterable[str]:
    return (topic.name or str(topic.topic_id) for topic in request.topics)


def _resources(request: Any) -> Iterable[str]:
    return (f"{resource.resource_type}:{resource.resource_name}" for resource in request.resources)


_NEW_ACL = attrgetter(
    "resource_type", "resource_pattern_type", "resource_name",
    "principal", "host", "operation", "permission_type",
)  # fmt: skip
_ACL_FILTER = attrgetter(
    "resource_type_filter", "pattern_type_filter", "resource_name_filter",
    "principal_filter", "host_filter", "operation", "permission_type",
)  # fmt: skip


def _created_acls(request: Any) -> Iterable[str]:
    return (_acl_text(*_NEW_ACL(acl)) for acl in request.creations)


def _acl_filters(request: Any) -> Iterable[str]:
    return (_acl_text(*_ACL_FILTER(acl)) for acl in request.filters)


def _acl_text(*fields: int | str | None) -> str:
    """Return the fields of an ACL, or of a filter, with its codes as numbers."""
    return ":".join("any" if field is None else str(field) for field in fields)


def _credentials(request: Any) -> Iterable[str]:
    yield from (deletion.name for deletion in request.deletions)
    yield from (upsertion.name for upsertion in request.upsertions)


def _quotas(request: Any) -> Iterable[str]:
    for entry in request.entries:
        yield "/".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)


def _group(request: Any) -> Iterable[str]:
    return (request.group_id,)


ADMINISTRATIVE: Mapping[int, Callable[[Any], Iterable[str]]] = MappingProxyType(
    {
        19: _topics,  # CreateTopics
        20: _deleted_topics,  # DeleteTopics
        21: _topics,  # DeleteRecords
        30: _created_acls,  # CreateAcls
        31: _acl_filters,  # DeleteAcls
        33: _resources,  # AlterConfigs
        37: _topics,  # CreatePartitions
        42: lambda request: request.groups_names,  # DeleteGroups
        44: _resources,  # IncrementalAlterConfigs
        47: _group,  # OffsetDelete
        49: _quotas,  # AlterClientQuotas
        51: _credentials,  # AlterUserScramCredentials
        57: lambda request: (update.feature for update in request.feature_updates),
        91: _group,  # AlterShareGroupOffsets
        92: _group,  # DeleteShareGroupOffsets
    }
)
"""The administrative requests, and what names the subjects of one of the newest version."""
