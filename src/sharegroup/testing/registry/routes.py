"""The endpoints of the registry: a request to an answer, without any network.

The paths, parameters, bodies and error codes are those of Confluent's REST API, version 1.  Not
served are contexts, exporters, associations, and changes of the mode.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sharegroup.testing.registry.errors import (
    InvalidRequest,
    InvalidSubject,
    InvalidVersion,
    MethodNotAllowed,
    OperationNotPermitted,
    PathNotFound,
    RegistryError,
    SubjectModeNotFound,
)
from sharegroup.testing.registry.schema_texts import Reference, SchemaText
from sharegroup.testing.registry.schema_types import AVRO, PARSERS, Compatibility
from sharegroup.testing.registry.store import LATEST, Store, StoredSchema, Version

MODE = "READWRITE"
VERSION_MAX = 2**31 - 1
SUBJECT_CHARACTERS_MAX = 1_000
STORED_PARTS = ("metadata", "ruleSet")
"""Parts of a schema that the registry stores for clients and does not interpret."""


class Answer(NamedTuple):
    """The HTTP status of an answer, and its body as JSON, or as it is if it is a `str`."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the parts of its path that vary, its parameters and its body."""

    parts: Sequence[str]
    parameters: Mapping[str, str]
    body: bytes

    def is_set(self, name: str) -> bool:
        """Return whether a parameter is ``true``."""
        return self.parameters.get(name, "false").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a parameter as a number."""
        text = self.parameters.get(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise InvalidRequest(f"the parameter {name}={text!r}: expected a number") from None

    def page(self, items: list[Any]) -> list[Any]:
        """Return the part of a list that ``offset`` and ``limit`` name."""
        first, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return items[first:] if limit < 0 else items[first : first + limit]

    @property
    def subject(self) -> str:
        """The first part of the path, a subject."""
        return _subject(self.parts[0])

    @property
    def version(self) -> int:
        """The second part of the path, a version."""
        text = self.parts[1]
        if text in ("latest", "-1"):
            return LATEST
        if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= VERSION_MAX:
            raise InvalidVersion(
                f"The specified version '{text}' is not a valid version id. Allowed values are "
                f'between [1, 2^31-1] and the string "latest"'
            )
        return int(text)

    @property
    def schema_id(self) -> int:
        """The first part of the path, an id."""
        text = self.parts[0]
        # Not by `int` alone, which accepts signs, spaces, underscores and digits of other scripts.
        if not re.fullmatch(r"[0-9]{1,10}", text):
            raise PathNotFound(f"the schema id {text!r}: expected a number")
        return int(text)

    def object(self) -> dict[str, Any]:
        """Return the body as a JSON object; raises InvalidRequest."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"the body: expected JSON: {error}") from error
        if not isinstance(value, dict):
            raise InvalidRequest(f"the body: expected a JSON object, found {type(value).__name__}")
        return value

    def schema(self) -> SchemaText:
        """Return the body as a schema; raises InvalidRequest."""
        body = self.object()
        text = body.get("schema")
        if not isinstance(text, str) or not text.strip():
            raise InvalidRequest(
                f"schema: expected the text of a schema, found {json.dumps(text)[:80]}"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"schema: expected Unicode: {error}") from error
        references = body.get("references") or ()
        if not isinstance(references, list | tuple):
            raise InvalidRequest(f"references: expected a list, found {references!r:.80}")
        stored = {part: body[part] for part in STORED_PARTS if body.get(part) is not None}
        return SchemaText(
            schema_type=str(body.get("schemaType") or AVRO).upper(),
            text=text,
            references=tuple(_reference(entry) for entry in references),
            metadata=json.dumps(stored, sort_keys=True) if stored else "",
        )


Handler = Callable[[Store, Request], Any]


class Routes:
    """Answers requests from a store, one at a time."""

    __slots__ = ("_lock", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()

    def answer(
        self, method: str, path: Sequence[str], parameters: Mapping[str, str], body: bytes
    ) -> Answer:
        """Answer a request; ``path`` has the decoded parts of the path."""
        try:
            return Answer(200, self.ask(method, path, parameters, body))
        except RegistryError as error:
            return refusal(error)

    def ask(
        self, method: str, path: Sequence[str], parameters: Mapping[str, str], body: bytes
    ) -> Any:
        """Return the body of the answer to a request; raises RegistryError if it is refused."""
        handler, parts = _route(method, path)
        with self._lock:
            # Parsing, too: a new schema is compared with versions that must not change meanwhile.
            return handler(self._store, Request(parts, parameters, body))


def refusal(error: RegistryError) -> Answer:
    """Return the answer for a refused request."""
    return Answer(error.status, {"error_code": error.code, "message": str(error)})


def _route(method: str, path: Sequence[str]) -> tuple[Handler, list[str]]:
    """Return the handler of a request and the parts of the path that vary."""
    for template, handlers in ROUTES:
        if len(template) != len(path):
            continue
        pairs = list(zip(template, path, strict=True))
        if all(expected in ("*", part) for expected, part in pairs):
            handler = handlers.get("GET" if method == "HEAD" else method)
            if handler is None:
                raise MethodNotAllowed(
                    f"{method} /{'/'.join(path)}: expected one of {', '.join(handlers)}"
                )
            return handler, [part for expected, part in pairs if expected == "*"]
    raise PathNotFound(f"HTTP 404 Not Found: this registry has no /{'/'.join(path)}")


def _subject(name: str) -> str:
    if name.startswith(":") or "\x00" in name or len(name) > SUBJECT_CHARACTERS_MAX:
        raise InvalidSubject(
            f"the subject {name[:80]!r}: expected at most {SUBJECT_CHARACTERS_MAX} characters and "
            "no context; this registry has none"
        )
    return name


def _reference(entry: Any) -> Reference:
    try:
        name, subject, version = entry["name"], entry["subject"], entry["version"]
    except (TypeError, KeyError) as error:
        raise InvalidRequest(
            f"references: expected objects with name, subject and version; found {entry!r}"
        ) from error
    if not (isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)):
        raise InvalidRequest(
            f"references: expected name and subject as texts and version as a number; "
            f"found {entry!r}"
        )
    return Reference(name, _subject(subject), version)


def _schema_facts(schema: StoredSchema, form: str) -> dict[str, Any]:
    source = schema.source
    facts: dict[str, Any] = {"schema": schema.parsed.formatted(form)}
    if source.schema_type != AVRO:
        facts["schemaType"] = source.schema_type
    if source.references:
        facts["references"] = [
            {"name": entry.name, "subject": entry.subject, "version": entry.version}
            for entry in source.references
        ]
    if source.metadata:
        facts |= json.loads(source.metadata)
    return facts | {"guid": schema.guid}


def _version_facts(version: Version, form: str = "") -> dict[str, Any]:
    return {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema.schema_id,
        **_schema_facts(version.schema, form),
    }


def _form(request: Request) -> str:
    return request.parameters.get("format", "")


def _list_subjects(store: Store, request: Request) -> list[str]:
    prefix = request.parameters.get("subjectPrefix", "")
    with_deleted = request.is_set("deleted") or request.is_set("deletedOnly")
    live = set(store.subjects()) if request.is_set("deletedOnly") else set()
    found = [
        subject
        for subject in store.subjects(with_deleted=with_deleted)
        if subject.startswith(prefix) and subject not in live
    ]
    return list(request.page(found))


def _list_versions(store: Store, request: Request) -> list[int]:
    only_deleted = request.is_set("deletedOnly")
    found = store.versions(request.subject, with_deleted=only_deleted or request.is_set("deleted"))
    return list(request.page([v.version for v in found if v.is_deleted or not only_deleted]))


def _register(store: Store, request: Request) -> dict[str, Any]:
    normalize = request.is_set("normalize")
    return _version_facts(store.register(request.subject, request.schema(), normalize=normalize))


def _lookup(store: Store, request: Request) -> dict[str, Any]:
    found = store.lookup(
        request.subject,
        request.schema(),
        normalize=request.is_set("normalize"),
        with_deleted=request.is_set("deleted"),
    )
    return _version_facts(found, _form(request))


def _find_version(store: Store, request: Request) -> Version:
    return store.version(request.subject, request.version, with_deleted=request.is_set("deleted"))


def _show_version(store: Store, request: Request) -> dict[str, Any]:
    return _version_facts(_find_version(store, request), _form(request))


def _show_version_text(store: Store, request: Request) -> str:
    return _find_version(store, request).schema.parsed.formatted(_form(request))


def _list_referrers(store: Store, request: Request) -> list[int]:
    return store.referenced_by(_find_version(store, request))


def _delete_subject(store: Store, request: Request) -> list[int]:
    return store.delete_subject(request.subject, permanent=request.is_set("permanent"))


def _delete_version(store: Store, request: Request) -> int:
    permanent = request.is_set("permanent")
    return store.delete_version(request.subject, request.version, permanent=permanent)


def _show_schema(store: Store, request: Request) -> dict[str, Any]:
    return _schema_facts(store.schema(request.schema_id), _form(request))


def _show_schema_of_guid(store: Store, request: Request) -> dict[str, Any]:
    schema = store.schema_of_guid(request.parts[0])
    return {"id": schema.schema_id, **_schema_facts(schema, _form(request))}


def _show_schema_text(store: Store, request: Request) -> str:
    return store.schema(request.schema_id).parsed.formatted(_form(request))


def _versions_of_schema(store: Store, request: Request) -> list[Version]:
    found = store.versions_of(request.schema_id, with_deleted=request.is_set("deleted"))
    wanted = request.parameters.get("subject")
    return [version for version in found if wanted in (None, version.subject)]


def _list_subjects_of_schema(store: Store, request: Request) -> list[str]:
    return request.page(list(dict.fromkeys(v.subject for v in _versions_of_schema(store, request))))


def _list_versions_of_schema(store: Store, request: Request) -> list[dict[str, Any]]:
    found = _versions_of_schema(store, request)
    return request.page([{"subject": v.subject, "version": v.version} for v in found])


def _check(store: Store, request: Request) -> dict[str, Any]:
    number = request.version if len(request.parts) > 1 else None
    reasons = store.incompatibilities(
        request.subject, request.schema(), number, normalize=request.is_set("normalize")
    )
    answer: dict[str, Any] = {"is_compatible": not reasons}
    if request.is_set("verbose"):
        answer["messages"] = reasons
    return answer


def _level_in(request: Request) -> Compatibility:
    body = request.object()
    others = sorted(key for key, value in body.items() if key != "compatibility" and value)
    if others:
        raise OperationNotPermitted(
            f"{', '.join(others)}: this registry has no configuration but compatibility"
        )
    return Compatibility.of(body.get("compatibility"))


def _show_level(store: Store, request: Request) -> dict[str, str]:  # noqa: ARG001
    return {"compatibilityLevel": store.level()}


def _set_level(store: Store, request: Request) -> dict[str, str]:
    level = _level_in(request)
    store.set_level(level)
    return {"compatibility": level}


def _reset_level(store: Store, request: Request) -> dict[str, str]:  # noqa: ARG001
    level = store.level()
    store.set_level(Compatibility.BACKWARD)
    return {"compatibilityLevel": level}


def _show_own_level(store: Store, request: Request) -> dict[str, str]:
    if request.is_set("defaultToGlobal"):
        return {"compatibilityLevel": store.level_of(request.subject)}
    return {"compatibilityLevel": store.own_level_of(request.subject)}


def _set_own_level(store: Store, request: Request) -> dict[str, str]:
    level = _level_in(request)
    store.set_level_of(request.subject, level)
    return {"compatibility": level}


def _delete_own_level(store: Store, request: Request) -> dict[str, str]:
    return {"compatibilityLevel": store.delete_level_of(request.subject)}


def _show_mode(store: Store, request: Request) -> dict[str, str]:  # noqa: ARG001
    return {"mode": MODE}


def _show_own_mode(store: Store, request: Request) -> dict[str, str]:  # noqa: ARG001
    if request.is_set("defaultToGlobal"):
        return {"mode": MODE}
    raise SubjectModeNotFound(f"Subject '{request.subject}' does not have subject-level mode")


def _refuse_mode(store: Store, request: Request) -> Any:  # noqa: ARG001
    raise OperationNotPermitted(f"this registry has the mode {MODE}, which cannot be changed")


def _list_types(store: Store, request: Request) -> list[str]:  # noqa: ARG001
    return list(PARSERS)


def _list_contexts(store: Store, request: Request) -> list[str]:  # noqa: ARG001
    return ["."]


def _show_nothing(store: Store, request: Request) -> dict[str, str]:  # noqa: ARG001
    return {}


_MODE: dict[str, Handler] = {"PUT": _refuse_mode, "DELETE": _refuse_mode}

ROUTES: tuple[tuple[tuple[str, ...], dict[str, Handler]], ...] = (
    ((), {"GET": _show_nothing}),
    (("subjects",), {"GET": _list_subjects}),
    (("subjects", "*"), {"POST": _lookup, "DELETE": _delete_subject}),
    (("subjects", "*", "versions"), {"GET": _list_versions, "POST": _register}),
    (("subjects", "*", "versions", "*"), {"GET": _show_version, "DELETE": _delete_version}),
    (("subjects", "*", "versions", "*", "schema"), {"GET": _show_version_text}),
    (("subjects", "*", "versions", "*", "referencedby"), {"GET": _list_referrers}),
    (("schemas", "types"), {"GET": _list_types}),
    (("schemas", "ids", "*"), {"GET": _show_schema}),
    (("schemas", "ids", "*", "schema"), {"GET": _show_schema_text}),
    (("schemas", "ids", "*", "subjects"), {"GET": _list_subjects_of_schema}),
    (("schemas", "ids", "*", "versions"), {"GET": _list_versions_of_schema}),
    (("schemas", "guids", "*"), {"GET": _show_schema_of_guid}),
    (("compatibility", "subjects", "*", "versions"), {"POST": _check}),
    (("compatibility", "subjects", "*", "versions", "*"), {"POST": _check}),
    (("config",), {"GET": _show_level, "PUT": _set_level, "DELETE": _reset_level}),
    (("config", "*"), {"GET": _show_own_level, "PUT": _set_own_level, "DELETE": _delete_own_level}),
    (("mode",), {"GET": _show_mode, **_MODE}),
    (("mode", "*"), {"GET": _show_own_mode, **_MODE}),
    (("contexts",), {"GET": _list_contexts}),
)
"""The endpoints: a path with ``*`` for the parts that vary, and the handler of each method."""
