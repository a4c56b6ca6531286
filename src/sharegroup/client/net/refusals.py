"""Makes exceptions from a broker's error codes, with the name of the refused item in the text.

Most brokers name the item in their message ("topic 'orders' exists already").  Some send only a
code, or a sentence without a name, so the name is added if it is missing.

No broker says which permission is missing.  So the text of an authorization error names the ACL
operation that the request needs, the resource, and the user if the client knows its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.metadata.v13.response import MetadataResponseTopic

from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    BY_CODE,
    NONE,
    AuthorizationException,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_for,
)

RESOURCES = {
    TopicAuthorizationFailed.code: "topic",
    GroupAuthorizationFailed.code: "group",
    ClusterAuthorizationFailed.code: "cluster",
    TransactionalIdAuthorizationFailed.code: "transactional_id",
}
"""The kind of resource that the permission is missing for, by error code."""


def refused(
    code: int,
    message: str | None,
    *,
    operation: str | None = None,
    principal: str | None = None,
    **about: str | int,
) -> KafkaError:
    """Return the exception for an error code other than 0.

    ``about`` has the items of the request, by kind.  ``operation`` is the ACL operation that the
    request needs; it is named if the code is an authorization error.

    >>> refused(36, "Topic 'a' already exists.", topic="a")
    TopicAlreadyExists("Topic 'a' already exists.")
    >>> refused(3, None, topic="a", partition=7)
    UnknownTopicOrPartition("topic 'a' partition 7: there is no such topic or partition here")
    >>> refused(29, "No.", topic="a", operation="WRITE", principal="User:ann")
    TopicAuthorizationFailed("No. (User:ann needs WRITE on topic 'a')")
    """
    text = (message or meaning(code)) + missing_right(code, operation, principal, **about)
    if not all(_names(text, kind, name) for kind, name in about.items()):
        where = " ".join(f"{kind} {name!r}" for kind, name in about.items())
        text = f"{where}: {text}"
    error = error_for(code, text)
    if isinstance(error, AuthorizationException):
        name = about.get(RESOURCES.get(code, ""))
        error.resource_name = None if name is None else str(name)
    return error


def topic_refusal(
    described: MetadataResponseTopic, operation: str, principal: str | None
) -> KafkaError:
    """Return the error of a topic in a metadata response.

    ``operation`` is the ACL operation on the topic that the caller needs.
    """
    if described.error_code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"topic {described.name!r} does not exist")
    name = str(described.name)
    return refused(described.error_code, None, operation=operation, principal=principal, topic=name)


def errors_of(
    codes: Mapping[TopicPartition, int],
    asked: Iterable[TopicPartition],
    *,
    operation: str,
    principal: str | None,
    **about: str,
) -> list[KafkaError]:
    """Return the errors of the requested partitions; also for those that the answer leaves out.

    ``codes`` has the error codes of the answer.
    """
    return [
        left_out("partition", where, **about)
        if code is None
        else refused(
            code,
            None,
            operation=operation,
            principal=principal,
            **about,
            topic=where.topic,
            partition=where.partition,
        )
        for where in asked
        if (code := codes.get(where)) != NONE
    ]


def left_out(kind: str, item: object, **about: str) -> UnknownServerError:
    """Return the error of a requested item that the broker's response does not contain.

    It is neither a success nor the absence of a value: nothing is known about the item.
    """
    names = "".join(f"{kind_of_name} {name!r} " for kind_of_name, name in about.items())
    return UnknownServerError(
        f"{names}{kind} {item!r}: the broker's response does not contain it; see the log of the "
        "broker"
    )


def answer_about(group_id: str, groups: Iterable[Any]) -> Any:
    """Return the part of an answer that is about this group; UnknownServerError if it has none."""
    for group in groups:
        if group.group_id == group_id:
            return group
    raise left_out("group", group_id)


def missing_right(
    code: int, operation: str | None, principal: str | None, **about: str | int
) -> str:
    """Return the missing permission in brackets, or "" if the code is no authorization error."""
    kind = RESOURCES.get(code)
    if kind is None or operation is None:
        return ""
    if kind in about:
        resource = f"{kind} {about[kind]!r}"
    elif kind == "topic" and "group" in about:
        # The error is about topics that the members subscribe to; no broker says which ones.
        resource = f"each topic of group {about['group']!r}"
    else:
        resource = f"the {kind}"
    return f" ({principal or 'the user'} needs {operation} on {resource})"


def may_pass(error: KafkaError) -> bool:
    """Whether the error may be temporary; UNKNOWN_SERVER_ERROR (code -1) counts as such."""
    return error.retriable or isinstance(error, UnknownServerError)


def meaning(code: int) -> str:
    """Return a text for an error code, for answers without a message of the broker."""
    text = (BY_CODE[code].__doc__ if code in BY_CODE else None) or "Refused."
    return text[0].lower() + text[1:].rstrip(".")


def _names(text: str, kind: str, name: str | int) -> bool:
    return f"{kind} {name!r}" in text or f"{kind.capitalize()} {name!r}" in text
