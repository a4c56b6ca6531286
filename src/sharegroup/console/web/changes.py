"""Changes: each goes through the same checks, in this order, and is logged with who and what.

    POST /redrive               a form of a page: the cookie's session, and the form's token
    POST /api/v1/redrive        JSON with Authorization: Bearer TOKEN; a cookie alone is refused

A change is a row of the table `CHANGES` in `routes`.  Its subject, a group, a topic or both, is
read from the fields before anything happens, and the user needs the role for it.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request

from sharegroup.console.access.audit import log_changed
from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields, Subject
from sharegroup.console.pages.page import Forbidden, Visit
from sharegroup.console.web.bodies import document_of, form_of
from sharegroup.console.web.visitors import Visitor

CONTENTS = ("key", "value", "headers")
"""Fields with the contents of a record, which no line of the log has."""
FORM_TOKEN = "form_token"  # noqa: S105 - the name of a field.


class ChangeRoute(NamedTuple):
    """A change: its path, kind, subject, and the function that performs it."""

    path: str
    kind: Change
    subject: Callable[[Visit, Fields], Awaitable[Subject]]
    perform: Callable[[Visit, Fields], Awaitable[Changed]]
    fields: tuple[str, ...] = ()
    """The names of its fields."""


async def named_subject(_: Visit, fields: Fields) -> Subject:
    """Return the group and the topic that the fields of these names have."""
    return Subject(fields.get("group") or None, fields.get("topic") or None)


async def group_subject(_: Visit, fields: Fields) -> Subject:
    """Return the group alone: the right for it covers its offsets in every topic."""
    return Subject(group=fields.get("group") or None)


async def form_fields(request: Request, visitor: Visitor) -> Fields:
    """Return the fields of a form that one of the console's own pages sent."""
    fields = await form_of(request)
    if not has_form_token(visitor, fields):
        raise Forbidden(
            "this form is not from a page of the console that you opened since you logged in; "
            "reload the page and send it again"
        )
    return {name: text for name, text in fields.items() if name != FORM_TOKEN}


async def api_fields(request: Request, visitor: Visitor) -> Fields:
    """Return the fields of a program's request, which has a token of its own."""
    if not visitor.has_token:
        raise Forbidden(
            "changes by the API need Authorization: Bearer TOKEN, not a cookie; the console has "
            "tokens if it is started with --token-file"
        )
    return await document_of(request)


def has_form_token(visitor: Visitor, fields: Fields) -> bool:
    """Whether a form has the token of its user; compared in constant time."""
    found = fields.get(FORM_TOKEN, "").encode("utf-8", "replace")
    return hmac.compare_digest(found, visitor.form_token.encode())


async def changed(route: ChangeRoute, visit: Visit, fields: Fields) -> Changed:
    """Perform a change if the user may; log it with its outcome, also if that is a failure."""
    if not visit.rights.allow_changes:
        raise Forbidden(visit.rights.why_not(route.kind))
    group, topic = await route.subject(visit, fields)
    outcome, done = "refused", ""
    try:
        if not visit.rights.may_change(route.kind, group=group, topic=topic):
            raise Forbidden(visit.rights.why_not(route.kind, group=group, topic=topic))
        outcome = "failed"
        result = await route.perform(visit, fields)
        outcome, done = "done", json.dumps(result.data, default=str)
        return result
    finally:
        named = _named(route, Subject(group, topic), fields)
        log_changed(visit.user, route.kind, named, outcome=outcome, result=done)


def _named(route: ChangeRoute, subject: Subject, fields: Fields) -> dict[str, str]:
    """Return what the log says of a change; a field that the route does not have is left out."""
    noted = {name: text for name, text in subject._asdict().items() if text is not None}
    left_out = (*CONTENTS, *noted)
    asked = {name: fields[name] for name in route.fields if name in fields and name not in left_out}
    return {"path": route.path, **noted, **asked}
