"""The description of the JSON API as OpenAPI 3.1, made from the tables of pages and changes.

GET /api/v1/openapi.json
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sharegroup import __version__
from sharegroup.console.web.changes import ChangeRoute
from sharegroup.console.web.routes import DownloadRoute, Route

PATH = "/openapi.json"
"""The path of the description, below that of the API."""
TABLE_PARAMETERS = {
    "sort": "Key of the column to sort by; with - before it, from the largest to the smallest.",
    "find": "Text that a row has to have.",
    "page": "Number of the page, from 1.",
}
TABLES = "The JSON has all rows: these parameters choose what the page shows."
PROBLEMS = {
    "400": "A parameter is missing or is not as expected.",
    "403": "The user may not see or change this.",
    "404": "The subject does not exist, or the user may not see it.",
    "502": "The cluster refused.",
    "504": "The cluster did not answer in time.",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What failed, and what to do."}},
}
TEXT = {"type": "string"}
FILE = {
    "description": "A file; its last line says so if it is not complete.",
    "content": {"application/x-ndjson": {"schema": TEXT}, "text/csv": {"schema": TEXT}},
}


def openapi(
    base: str,
    routes: Sequence[Route],
    downloads: Sequence[DownloadRoute],
    changes: Sequence[ChangeRoute],
) -> dict[str, Any]:
    """Return the description; ``base`` is the path of the API on this server."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})["get"] = {
            "operationId": _name("get", route.path),
            "summary": _sentence(route.page),
            "parameters": [*_parameters(route)],
            "responses": _responses(),
        }
    for download in downloads:
        paths.setdefault(download.path, {})["get"] = {
            "operationId": _name("get", download.path),
            "summary": _sentence(download.export),
            "parameters": [_parameter(name, needed=name == "topic") for name in download.takes],
            "responses": {**_responses(), "200": FILE},
        }
    for change in changes:
        content = {"type": "object", "properties": dict.fromkeys(change.fields, TEXT)}
        paths.setdefault(change.path, {})["post"] = {
            "operationId": _name("post", change.path),
            "summary": _sentence(change.perform),
            "requestBody": {"required": True, "content": {"application/json": {"schema": content}}},
            "responses": _responses(),
            "security": [{"token": []}],
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "sharegroup console", "version": __version__},
        "servers": [{"url": base}],
        "security": [{}, {"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "the session of a browser that has logged in",
                },
            },
        },
    }


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in (*route.needs, *route.takes):
        yield _parameter(name, needed=name in route.needs)
    for table in route.tables:
        for part, text in TABLE_PARAMETERS.items():
            yield {
                "name": f"{table}-{part}",
                "in": "query",
                "description": f"{text} {TABLES}",
                "schema": TEXT,
            }


def _parameter(name: str, *, needed: bool) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": needed, "schema": TEXT}


def _responses() -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    done = {"application/json": {"schema": {"type": "object"}}}
    return {
        "200": {"description": "What the page shows.", "content": done},
        **{code: {"description": text, "content": error} for code, text in PROBLEMS.items()},
    }


def _name(method: str, path: str) -> str:
    return (
        "-".join((method, *filter(None, path.split("/")))) if path != "/" else f"{method}-overview"
    )


def _sentence(function: Callable[..., Any]) -> str:
    """Return the first line of a function's documentation."""
    text = inspect.getdoc(function)
    assert text, f"{function.__name__} has a docstring"
    return text.splitlines()[0]
