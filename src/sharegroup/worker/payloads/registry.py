"""Payloads with a schema in a schema registry: Avro, or JSON with a schema.

Values begin with a zero byte and the schema id, as all clients of Confluent's registry write them.
This module uses that client (``confluent_kafka.schema_registry``), which must be installed.
Decoding may query the registry for an unknown schema, so it runs in a thread.  If the registry does
not answer, `RegistryAway` is raised and the record is retried.  JSON values are validated by their
sender's schema, but for its regular expressions.

The client of a ``Registry("http://...")`` is closed when the application ends, and opened again
when the same handlers run again, as those of a module do in several tests.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sharegroup.errors import InvalidConfig
from sharegroup.registry_address import client_conf
from sharegroup.schema_registry.avro_values import CheckPayload, payload_check
from sharegroup.worker.payloads.json_values import from_plain, schema_of, to_plain

if TYPE_CHECKING:
    from sharegroup.worker.payloads.json_values import Decode, Encode

SERVER_ERROR = 500
NOT_OF_THE_BYTES = (401, 403, 407, 408, 429)
"""Statuses below `SERVER_ERROR` that say nothing of the schema: a password that has changed, a
registry that is slow or has too many requests.  A record must not become a dead letter for them."""
SCHEMAS_MAX = 1_000
"""Schemas of which a reader keeps how payloads are checked."""
MATCHES_ALL = "^"
IN_MEMORY = "mock://"
"""Beginning of the address of Confluent's registry in memory."""


class RegistryAway(ConnectionError):
    """The schema registry is not available; the record is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """The classes of confluent_kafka that this module uses."""

    client: Any
    serializers: Mapping[str, tuple[Any, Any]]
    context: Callable[[str], Any]
    registry_error: type[Exception]
    transport_errors: tuple[type[Exception], ...]


class SchemaFormat(StrEnum):
    """The format of a registry's schemas."""

    AVRO = "avro"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry for payloads: ``payload=Registry("http://127.0.0.1:8081", schema=...)``.

    ``at`` is the URL of the registry, or a registry client of the application.  ``options`` has
    further options of the client, such as ``basic.auth.user.info``.  ``schema`` is the schema of
    the sender as text.  With None, a JSON schema is derived from the handler's annotation, and for
    Avro the newest schema of the registry is used.
    """

    at: Any = field(repr=False)  # An address may have a password in it.
    format: SchemaFormat | Literal["avro", "json"] = "avro"
    schema: str | None = None
    register: bool = True
    """Whether the sender may register its schema."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if self.format not in SchemaFormat.__members__.values():
            raise InvalidConfig(f"Registry: format={self.format!r}; expected 'avro' or 'json'")
        object.__setattr__(self, "format", SchemaFormat(self.format))

    def functions_for(self, annotation: Any) -> tuple[Decode, Encode, Callable[[], None]]:
        """The functions that decode and encode this annotation, and one that closes the client.

        The closed client is opened again by the next call of one of the others.
        """
        library = _library()
        make_reader, make_writer = library.serializers[self.format]
        schema = self.schema
        if schema is None and self.format is SchemaFormat.JSON:
            schema = json.dumps({"title": _title_of(annotation), **schema_of(annotation)})
        # A sender without a schema of its own has nothing to register.
        newest = schema is None
        conf = {
            "auto.register.schemas": self.register and not newest,
            "use.latest.version": newest,
        }
        typed = from_plain(annotation)

        def serializers(client: Any) -> _Serializers:
            return _Serializers(make_reader(client), make_writer(client, schema, conf))

        connection = _Connection(self, library, serializers)

        def read(value: bytes) -> Any:
            reader = connection.serializers().reader
            return typed(_asked(library, lambda: reader(value, library.context(""))))

        def write(payload: Any, topic: str) -> bytes:
            plain, writer = to_plain(payload), connection.serializers().writer
            if self.format is SchemaFormat.JSON:
                json.dumps(plain, allow_nan=False)  # The serializer writes NaN, which is not JSON.
            encoded = _asked(library, lambda: writer(plain, library.context(topic)))
            assert isinstance(encoded, bytes), type(encoded)
            return encoded

        return read, write, connection.close


class _Serializers(NamedTuple):
    """The functions of confluent_kafka that use one registry client."""

    reader: Callable[..., Any]
    writer: Callable[..., Any]


class _Connection:
    """The registry client of one handler, with its serializers; used by several threads."""

    __slots__ = ("_client", "_library", "_lock", "_make", "_registry", "_serializers")

    def __init__(
        self, registry: Registry, library: _Library, make: Callable[[Any], _Serializers]
    ) -> None:
        self._registry = registry
        self._library = library
        self._make = make
        self._lock = threading.Lock()
        self._client: Any = None
        self._serializers: _Serializers | None = None
        # A schema with a mistake is an error of the declaration, and not of the first record.
        self.serializers()

    def serializers(self) -> _Serializers:
        """The serializers, with a new client if `close` was called before."""
        with self._lock:
            if self._serializers is None:
                self._client = self._registry.at
                if isinstance(self._client, str):
                    conf = client_conf(self._client, self._registry.options)
                    self._client = self._library.client(conf)
                self._serializers = self._make(self._client)
            return self._serializers

    def close(self) -> None:
        """Close the client, unless it is the application's or has no connection to close."""
        at = self._registry.at
        if not isinstance(at, str) or at.startswith(IN_MEMORY):
            return
        with self._lock:
            if self._serializers is not None:
                self._serializers = None
                self._client.close()


def _asked(library: _Library, call: Callable[[], Any]) -> Any:
    """Call a function; raises RegistryAway if the registry is not available."""
    try:
        return call()
    except library.transport_errors as error:
        raise RegistryAway(f"schema registry: {error}") from error
    except library.registry_error as error:
        status = getattr(error, "http_status_code", 0)
        if status >= SERVER_ERROR or status in NOT_OF_THE_BYTES:
            raise RegistryAway(f"schema registry: {error}") from error
        raise


def _without_retrieval(serializer: Any) -> Any:
    """Return a class whose JSON schemas refer only to schemas of the registry.

    Confluent's class fetches a ``$ref`` with a URL over HTTP, and the sender of a record chooses
    the schema.
    """

    def parsed_schema(self: Any, schema: Any) -> tuple[Any, Any]:
        parsed, resources = serializer._get_parsed_schema(self, schema)
        if resources is not None:  # A registry of its class that retrieves nothing.
            resources = type(resources)().with_resources(resources.items())
        return parsed, resources

    return type(serializer.__name__, (serializer,), {"_get_parsed_schema": parsed_schema})


def _json_reader(serializer: Any) -> Any:
    """Return a deserializer class that evaluates no regular expression of a schema.

    The sender of a record chooses its schema, and Python's engine may need years for an expression
    such as ``(a+)+$``, in which no other thread of the process runs.  All else is validated, unless
    that takes too long (`bounded_validator`).
    """
    # Imported here, as the client of the registry, which needs it.
    from sharegroup.worker.payloads.bounded_validator import BoundedValidator

    def validator(self: Any, schema: Any, parsed: Any, resources: Any) -> Any:
        with self._validators_lock:
            known = self._validators.get(schema)
        if known is not None:
            return known
        plain = {
            uri: type(resource)(without_patterns(resource.contents), resource._specification)
            for uri, resource in resources.items()
        }
        resources = type(resources)().with_resources(plain.items())
        made = BoundedValidator(without_patterns(parsed), resources)
        with self._validators_lock:
            self._validators[schema] = made
        return made

    return type(serializer.__name__, (serializer,), {"_get_validator": validator})


def without_patterns(schema: Any) -> Any:
    """Return a copy of a JSON schema whose regular expressions match every text.

    Everywhere in it, because ``$ref`` may lead to any part.  Names that ``patternProperties``
    allows stay allowed beside ``"additionalProperties": false``.
    """
    match schema:
        case dict():
            copy = {name: without_patterns(part) for name, part in schema.items()}
            if isinstance(copy.get("pattern"), str):
                copy["pattern"] = MATCHES_ALL
            if isinstance(copy.get("patternProperties"), dict):
                copy["patternProperties"] = {MATCHES_ALL: True}
            return copy
        case list():
            return [without_patterns(part) for part in schema]
        case _:
            return schema


def _avro_reader(avro: Any, deserialize_id: Callable[..., Any], client: Any) -> Any:
    """Return an Avro deserializer that checks payloads before they are decoded."""

    @lru_cache(maxsize=SCHEMAS_MAX)
    def check_of(number: int | None, guid: str | None) -> CheckPayload | None:
        of_guid, of_number = client.get_schema_by_guid, client.get_schema
        schema = of_guid(guid) if number is None else of_number(number)
        is_encoded = bool(schema.rule_set and schema.rule_set.encoding_rules)
        return payload_check(reader._get_parsed_schema(schema), {}, is_encoded=is_encoded)

    def checked(value: bytes, context: Any, schema_id: Any) -> Any:
        payload = deserialize_id(value, context, schema_id)
        guid = None if schema_id.guid is None else str(schema_id.guid)
        if (check := check_of(schema_id.id, guid)) is not None:
            check(payload.getbuffer()[payload.tell() :])
        return payload

    reader = avro.AvroDeserializer(client, conf={"schema.id.deserializer": checked})
    return reader


def _title_of(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else "payload"


def _library() -> _Library:
    try:
        # Suppresses warnings that the libraries raise at import whatever the filters are.  They
        # concern the authors of these libraries.
        with warnings.catch_warnings(record=True):
            # Imported here, because these libraries are optional and large.
            import httpx
            from confluent_kafka.schema_registry import (
                SchemaRegistryClient,
                avro,
                dual_schema_id_deserializer,
                json_schema,
            )
            from confluent_kafka.schema_registry.error import SchemaRegistryError
            from confluent_kafka.serialization import MessageField, SerializationContext
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"{error}: payload=Registry(...) needs Confluent's registry client, "
            f"pip install 'confluent-kafka[avro,json,schemaregistry]'"
        ) from error
    json_reader = _json_reader(_without_retrieval(json_schema.JSONDeserializer))
    json_writer = _without_retrieval(json_schema.JSONSerializer)
    return _Library(
        client=SchemaRegistryClient.new_client,
        serializers={
            "avro": (
                lambda client: _avro_reader(avro, dual_schema_id_deserializer, client),
                lambda client, schema, conf: avro.AvroSerializer(client, schema, conf=conf),
            ),
            "json": (
                lambda client: json_reader(None, schema_registry_client=client),
                lambda client, schema, conf: json_writer(schema, client, conf=conf),
            ),
        },
        context=lambda topic: SerializationContext(topic, MessageField.VALUE),
        registry_error=SchemaRegistryError,
        transport_errors=(httpx.TransportError, OSError),
    )
