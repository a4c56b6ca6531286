"""The schemas that a process has fetched from a registry, with the functions that decode values.

Spark's Python workers run many tasks, so schemas are kept for the next one: up to ``SCHEMAS_MAX``
of each registry, the least recently used is dropped.  An id that the registry does not know is
remembered for ``UNKNOWN_SECONDS``, so that many unreadable rows cause few requests.

A registry that does not answer is no fault of a row.  Requests have a time limit and are retried;
then `RegistryAway` fails the task, and Spark runs it again.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from sharegroup.errors import InvalidConfig
from sharegroup.registry_address import client_conf, without_credentials
from sharegroup.schema_registry.avro_values import avro_decode
from sharegroup.schema_registry.decoding import (
    Decode,
    FetchedSchema,
    UnreadableValue,
    json_decode,
    protobuf_decode,
)

SCHEMAS_MAX = 1_000
REGISTRIES_MAX = 20
REFERENCES_MAX = 100
"""Maximum number of schemas that one schema refers to, also indirectly."""
UNKNOWN_SECONDS = 30.0
NO_CONNECTION_TRIES = 4
NO_CONNECTION_WAIT_SECONDS = 0.25
"""Wait after the first request without connection; each further wait is twice as long."""
NOT_FOUND = 404
DESCRIPTOR = "serialized"
OPTIONS: Mapping[str, Any] = {
    "timeout": 10,
    "max.retries": 5,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 5_000,
    "cache.capacity": SCHEMAS_MAX,
}
"""Options of Confluent's client, unless the user sets them; the time limit is in seconds."""

T = TypeVar("T")


class RegistryAway(ConnectionError):
    """The schema registry is not available, or refuses the requests of this user."""


class RegistrySchemas:
    """The schemas of one registry."""

    def __init__(self, url: str, options: Mapping[str, Any], reader_schema: str | None) -> None:
        self._shown_url = without_credentials(url)
        self._reader_schema = reader_schema
        make, self._registry_error, self._transport_errors = _library()
        conf = client_conf(url, {**OPTIONS, **options})
        self._texts = make(conf)
        self._descriptors = make(conf)  # A client's cache does not distinguish formats.
        self._decodes: OrderedDict[int, Decode] = OrderedDict()
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def decode_of(self, schema_id: int) -> Decode:
        """Return the function that decodes values of a schema.

        UnreadableValue if there is no such schema, RegistryAway if the registry does not answer.
        """
        if (decode := self._decodes.get(schema_id)) is not None:
            self._decodes.move_to_end(schema_id)
            return decode
        until, reason = self._unknown.get(schema_id, (0.0, ""))
        if time.monotonic() < until:
            raise UnreadableValue(reason)
        try:
            decode = self._fetched_decode(schema_id)
        except UnreadableValue as error:
            self._unknown[schema_id] = time.monotonic() + UNKNOWN_SECONDS, str(error)
            _limit(self._unknown)
            raise
        self._decodes[schema_id] = decode
        _limit(self._decodes)
        return decode

    def close(self) -> None:
        """Close the connections to the registry."""
        self._texts.close()
        self._descriptors.close()

    def _fetched_decode(self, schema_id: int) -> Decode:
        subject = f"schema {schema_id}"
        schema: Any = self._ask(lambda: self._texts.get_schema(schema_id), subject)
        try:
            match schema.schema_type:
                case "AVRO" | None:
                    fetched = self._with_references(self._texts, schema, None, {})
                    return avro_decode(fetched, self._reader_schema)
                case "JSON":
                    return json_decode
                case "PROTOBUF":
                    descriptor = self._ask(
                        lambda: self._descriptors.get_schema(schema_id, fmt=DESCRIPTOR), subject
                    )
                    fetched = self._with_references(self._descriptors, descriptor, DESCRIPTOR, {})
                    return protobuf_decode(fetched)
        except (InvalidConfig, RegistryAway, UnreadableValue):
            raise
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        except Exception as error:  # The classes of three libraries, for a schema they can't use.
            raise UnreadableValue(f"schema {schema_id} is not usable: {_text(error)}") from error
        raise UnreadableValue(f"schema {schema_id} has the unknown type {schema.schema_type!r}")

    def _with_references(
        self, client: Any, schema: Any, form: str | None, seen: dict[Any, FetchedSchema]
    ) -> FetchedSchema:
        """Return the schema with those that it refers to; ``seen`` has those fetched so far."""
        references = {}
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            if place not in seen:
                if len(seen) >= REFERENCES_MAX:
                    raise UnreadableValue(f"it refers to more than {REFERENCES_MAX} schemas")
                get = partial(client.get_version, *place, fmt=form)
                found: Any = self._ask(get, f"subject {place[0]!r} version {place[1]}")
                seen[place] = self._with_references(client, found.schema, form, seen)
            references[reference.name] = seen[place]
        return FetchedSchema(schema.schema_str, references)

    def _ask(self, request: Callable[[], T], subject: str) -> T:
        """Send a request, again if there was no connection.  The client repeats refused ones."""
        for number in range(NO_CONNECTION_TRIES):
            try:
                return request()
            except self._registry_error as error:
                if getattr(error, "http_status_code", None) == NOT_FOUND:
                    raise UnreadableValue(
                        f"{subject} is unknown to the schema registry {self._shown_url}"
                    ) from error
                text = f"schema registry {self._shown_url}: {subject}: {error}"
                raise RegistryAway(text) from error
            except self._transport_errors as error:
                if number == NO_CONNECTION_TRIES - 1:
                    raise RegistryAway(
                        f"schema registry {self._shown_url} does not answer: {_text(error)}; "
                        "expected a registry there: check the url, and that this machine reaches it"
                    ) from error
                time.sleep(NO_CONNECTION_WAIT_SECONDS * 2**number)
        raise AssertionError("the last try returns or raises")


_known: OrderedDict[Any, RegistrySchemas] = OrderedDict()
_known_pid = 0


def schemas_of(url: str, options: Mapping[str, Any], reader_schema: str | None) -> RegistrySchemas:
    """Return the schemas of a registry in this process, created on first use."""
    global _known_pid  # noqa: PLW0603  Living as long as the process is what this is for.
    if _known_pid != os.getpid():  # A fork has no usable connections.
        _known.clear()
        _known_pid = os.getpid()
    key = (url, reader_schema, repr(sorted(options.items())))
    if key not in _known:
        _known[key] = RegistrySchemas(url, options, reader_schema)
        if len(_known) > REGISTRIES_MAX:
            _, dropped = _known.popitem(last=False)
            dropped.close()
    return _known[key]


def close() -> None:
    """Close the connections of this process; the next value opens new ones."""
    if _known_pid == os.getpid():
        for schemas in _known.values():
            schemas.close()
    _known.clear()


def _limit(entries: OrderedDict[Any, Any]) -> None:
    while len(entries) > SCHEMAS_MAX:
        entries.popitem(last=False)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _library() -> tuple[Callable[..., Any], type[Exception], tuple[type[Exception], ...]]:
    """Return the class of the client, and the errors of the registry and of connections."""
    try:
        # Suppresses warnings that the libraries raise at import whatever the filters are.  They
        # concern the authors of these libraries.
        with warnings.catch_warnings(record=True):
            # Imported here, because these libraries are optional and large.
            import httpx
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return SchemaRegistryClient.new_client, SchemaRegistryError, (httpx.TransportError, OSError)


def _missing(error: ModuleNotFoundError) -> InvalidConfig:
    return InvalidConfig(
        f"{error}: a schema registry needs Confluent's client (Spark: on driver and executors), "
        "pip install 'confluent-kafka[avro,protobuf,schemaregistry]'"
    )
