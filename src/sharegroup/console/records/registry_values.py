"""Values decoded by the schemas of a registry, as JSON.

The address of the registry is fixed by configuration.  A value's first bytes name its schema, which
is fetched in a thread, one at a time, and kept.  A page waits for it up to `WAIT_SECONDS`; without
it the value is shown as it is, with a sentence.  Decoding itself is bounded by the size of the
value, because a schema with which few bytes become many values does not decode them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sharegroup.schema_registry.decoding import (
    MAGIC,
    PREFIX_BYTES,
    Decode,
    UnreadableValue,
    schema_id_of,
)
from sharegroup.schema_registry.schemas import RegistryAway, RegistrySchemas

WAIT_SECONDS = 2.0
"""How long a page waits for schemas."""
AWAY_SECONDS = 10.0
"""How long the registry is not asked again after it did not answer."""
FETCHED_MAX = 20
"""Schemas that are fetched at once; a value can name any."""
KEPT_MAX = 1_000
"""Schemas, and reasons why there is none, that are kept."""
REASON_SECONDS = 30.0
"""How long an id is not asked for again that has no usable schema."""
VALUE_BYTES_MAX = 64 * 1024
"""Size of a value that is decoded; a larger one is shown as it is."""
JSON_BYTES_MAX = 4 * 1024 * 1024
OPTIONS = {"timeout": 2, "max.retries": 0}

Kept = tuple[float, Decode | str]
"""Until when it is kept, and the function that decodes values, or why there is none."""


class _Client:
    """The client, and the one thread that uses it."""

    __slots__ = ("schemas", "thread")

    def __init__(self, url: str) -> None:
        self.schemas = RegistrySchemas(url, OPTIONS, None)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console schemas")

    def close(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)
        self.schemas.close()


class RegistryValues:
    """Decodes values by the schemas of one registry."""

    def __init__(self, url: str) -> None:
        """Prepare a client; InvalidConfig if its library is not installed."""
        self._url = url
        self._client: _Client | None = _Client(url)
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._away_until = 0.0
        self._away = ""

    def close(self) -> None:
        """Close the client; the next `prepare` opens another one."""
        for task in list(self._fetching.values()):
            task.cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def problem(self) -> str:
        """Why schemas cannot be fetched at the moment; empty if nothing is known to be wrong."""
        if time.monotonic() >= self._away_until:
            return ""
        return f"Values are shown as they are: {self._away}."

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetch the schemas of these values that are not there, within the time of a page."""
        now = time.monotonic()
        wanted = {schema_id for value in values if (schema_id := _id_of(value)) is not None}
        waiting = set()
        for schema_id in wanted:
            kept = self._kept.get(schema_id)
            if kept is not None and now < kept[0]:
                continue
            if schema_id not in self._fetching:
                if now < self._away_until or len(self._fetching) >= FETCHED_MAX:
                    continue
                self._fetching[schema_id] = asyncio.create_task(self._fetch(schema_id))
            waiting.add(self._fetching[schema_id])
        if waiting:
            await asyncio.wait(waiting, timeout=WAIT_SECONDS)

    async def _fetch(self, schema_id: int) -> None:
        loop = asyncio.get_running_loop()
        kept: Kept
        try:
            if time.monotonic() < self._away_until:
                return
            if self._client is None:
                self._client = _Client(self._url)
            client = self._client
            decode = await loop.run_in_executor(client.thread, client.schemas.decode_of, schema_id)
            kept = math.inf, decode
        except RegistryAway as error:
            self._away, self._away_until = str(error), time.monotonic() + AWAY_SECONDS
            return
        except UnreadableValue as error:
            kept = time.monotonic() + REASON_SECONDS, str(error)
        except Exception as error:  # noqa: BLE001  A peer that is no registry answers anything.
            text = f"the schema registry gave no schema: {type(error).__name__}: {error}"
            kept = time.monotonic() + REASON_SECONDS, text
        finally:
            self._fetching.pop(schema_id, None)
        self._kept[schema_id] = kept
        self._kept.move_to_end(schema_id)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def decoded(self, value: bytes | None) -> bytes | None:
        """Return a value as JSON; as it is if it has no schema here, or is not of that form."""
        return self._outcome(value)[0]

    def note(self, value: bytes | None) -> str:
        """Return which schema decoded a value, or why it is shown as it is."""
        return self._outcome(value)[1]

    def _outcome(self, value: bytes | None) -> tuple[bytes | None, str]:
        schema_id = _id_of(value)
        if value is None or schema_id is None:
            return value, ""
        if len(value) > VALUE_BYTES_MAX:
            return value, f"Not decoded: it has more than {VALUE_BYTES_MAX >> 10} KiB."
        _, decode = self._kept.get(schema_id, (0.0, ""))
        if isinstance(decode, str):
            reason = decode or self._away or "the schema registry has not answered yet"
            return value, f"Not decoded by schema {schema_id}: {reason}."
        try:
            document = json.dumps(
                decode(value[PREFIX_BYTES:]), ensure_ascii=False, default=_plain
            ).encode("utf-8", "backslashreplace")
        except UnreadableValue as error:
            return value, f"Not decoded by schema {schema_id}: {error}."
        except Exception as error:  # noqa: BLE001  The classes of three libraries, for any bytes.
            return value, f"Not decoded: it is not of schema {schema_id} ({type(error).__name__})."
        if len(document) > JSON_BYTES_MAX:
            return value, f"Not decoded: as JSON it has more than {JSON_BYTES_MAX >> 20} MiB."
        return document, f"Decoded by schema {schema_id} of the schema registry."


def _id_of(value: bytes | None) -> int | None:
    if value is None or len(value) < PREFIX_BYTES or value[0] != MAGIC:
        return None
    return schema_id_of(value)


def _plain(value: Any) -> Any:
    """Return bytes in base64, and dates, decimals and ids as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
