"""Bodies of requests: forms and JSON, within bounds."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

from starlette.requests import Request

BODY_BYTES_MAX = 64 * 1024
FIELDS_MAX = 100
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


class BadBody(ValueError):
    """A request's body is not as expected; ``status`` is that of the answer."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, the last of each name."""
    content = await _content(request, FORM)
    try:
        pairs = parse_qsl(
            content.decode("ascii"), keep_blank_values=True, errors="strict",
            max_num_fields=FIELDS_MAX,
        )  # fmt: skip
    except ValueError as error:
        raise BadBody(f"the form cannot be read: {error}") from None
    return dict(pairs)


async def document_of(request: Request) -> dict[str, str]:
    """Return the fields of a JSON object whose values are texts, numbers or words."""
    try:
        document = json.loads(await _content(request, JSON))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadBody):
            raise
        raise BadBody(f"the body is no JSON: {error}") from None
    if not isinstance(document, dict) or len(document) > FIELDS_MAX:
        raise BadBody(f"expected a JSON object of at most {FIELDS_MAX} fields")
    fields = {}
    for name, value in document.items():
        if isinstance(value, (dict, list)):
            raise BadBody(f"{name[:100]!r}: expected a text, a number, true, false or null")
        if value is not None:
            fields[name] = value if isinstance(value, str) else json.dumps(value)
    return fields


async def _content(request: Request, kind: str) -> bytes:
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != kind:
        raise BadBody(f"expected Content-Type: {kind}, found {found[:100]!r}", 415)
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > BODY_BYTES_MAX:
            raise BadBody(f"expected at most {BODY_BYTES_MAX} bytes", 413)
    return bytes(content)
