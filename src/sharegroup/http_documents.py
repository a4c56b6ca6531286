"""Gets JSON documents from the HTTP ports of brokers and workers.

Another program may listen on a port by now, so nothing in an answer is taken for granted.  It is a
module of its own, because `json_documents` is imported by every application, and an HTTP client
takes longer to import than the rest of that.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from sharegroup.escaping import escaped
from sharegroup.json_documents import ForeignDocument

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of an answer; those of `sharegroup serve` are below 400 KB."""
PIECE_BYTES = 64 * 1024
SHOWN = 200
"""Number of characters of a foreign answer that its error shows."""

CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}


def get_document(url: str, *, timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer.

    OSError if there is no answer within the time, and ForeignDocument if it is not a JSON object.
    """
    try:
        status, body = _get(url, timeout_s)
    except (HTTPException, UnicodeError) as error:  # The second: no name of a machine.
        raise OSError(f"expected an HTTP response, found {error!r}") from error
    try:
        document = json.loads(body)
    # The second: a foreign program may answer with a hundred thousand brackets.
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        text = escaped(body[:SHOWN].decode("utf-8", "replace").strip())
        raise ForeignDocument(f"expected a JSON object, found status {status} and {text!r}")
    return status, document


def _get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Send a request without the environment's proxies, which are not for these ports."""
    parts = urlsplit(url)
    if parts.scheme not in CONNECTIONS or parts.hostname is None:
        raise ValueError(f"expected the URL of an HTTP port, found {url!r}")
    deadline = time.monotonic() + timeout_s
    connection = CONNECTIONS[parts.scheme](parts.hostname, parts.port, timeout=timeout_s)
    body = bytearray()
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Connection": "close"})
        response = connection.getresponse()
        while len(body) < ANSWER_BYTES_MAX and (piece := response.read1(PIECE_BYTES)):
            body += piece
            if time.monotonic() > deadline:
                raise TimeoutError(f"no complete response within {timeout_s:g} s")
        return response.status, bytes(body)
    finally:
        connection.close()
