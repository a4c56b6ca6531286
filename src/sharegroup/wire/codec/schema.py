"""The fields of message classes, read once from kio's dataclass metadata.

kio generates one frozen dataclass for each struct of Kafka's schemas. A field's metadata has its
Kafka type (``kafka_type``) and its tag; nullability and arrays are in the Python type. All code
that works on messages in general (decoder, encoder, conversion) is based on this module. It also
has the error codes of messages, and the lines of source that decoder and encoder generate.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import CodeType, NoneType, TracebackType, UnionType
from typing import Any, ClassVar, cast, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from sharegroup.errors import KafkaError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Kafka types of a fixed size, as struct letters."""

VARIABLE_TYPES = ("string", "bytes", "records")

_LEGACY_FIELD = ("RequestHeader", "client_id")

_IMPLICIT = {
    "bool": False,
    "float64": 0.0,
    "error_code": ErrorCode.none,
    "uuid": None,
    "string": "",
    "bytes": b"",
    "records": None,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": EPOCH,
}
"""Kafka's zero of each type; types that are not listed are numbers."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message; exactly one of ``kafka_type`` and ``entity`` is set."""

    name: str
    kafka_type: str | None
    entity: type[Any] | None
    is_array: bool
    nullable: bool
    """Whether null is allowed: for an array in place of the array, never of its elements."""
    compact: bool
    """Whether its length is a varint, one more than the length, with 0 for null."""
    tag: int | None
    default: Any
    """The default of the schema; Kafka's zero of the type if it has none."""

    @property
    def is_fixed(self) -> bool:
        """Whether every value takes the same number of bytes."""
        return self.kafka_type in FIXED_FORMATS and not self.is_array


# Neither is ever cleared: message classes are declared in modules, so their number is bounded.
_known: dict[type[Any], tuple[MessageField, ...]] = {}
_with_arrays: dict[type[Any], bool] = {}


def message_fields(cls: type[Any]) -> tuple[MessageField, ...]:
    """Return the fields of a message class in the order of the wire, tagged ones included."""
    fields = _known.get(cls)
    if fields is None:
        fields = tuple(_message_field(cls, field) for field in dataclasses.fields(cls))
        _known[cls] = fields
    return fields


def has_arrays(cls: type[Any]) -> bool:
    """Return whether the class, or a struct in it, has an array, so its length is not limited."""
    answer = _with_arrays.get(cls)
    if answer is None:
        answer = _with_arrays[cls] = any(
            field.is_array or (field.entity is not None and has_arrays(field.entity))
            for field in message_fields(cls)
        )
    return answer


def is_flexible_class(cls: type[Any]) -> bool:
    """Return whether lengths are compact and tagged fields follow the others."""
    return bool(cls.__flexible__)


def _message_field(cls: type[Any], field: dataclasses.Field[Any]) -> MessageField:
    inner: Any = field.type
    nullable = False
    if get_origin(inner) is UnionType:
        nullable = NoneType in get_args(inner)
        (inner,) = (alternative for alternative in get_args(inner) if alternative is not NoneType)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = get_args(inner)[0]
    entity: Any = inner if dataclasses.is_dataclass(inner) else None
    kafka_type = None if entity else str(field.metadata["kafka_type"])
    # Kafka's schemas allow null records everywhere, kio's types do not in ShareFetch.
    nullable = nullable or kafka_type == "records"
    # Kafka keeps the old string format for the client id in every version of the header, because
    # older brokers must be able to read it in any ApiVersions request (RequestHeader.json).
    compact = is_flexible_class(cls) and (cls.__name__, field.name) != _LEGACY_FIELD
    assert entity or kafka_type in FIXED_FORMATS or kafka_type in VARIABLE_TYPES, field
    if field.default is not dataclasses.MISSING:
        default = field.default
    else:
        default = _implicit_default(kafka_type, entity, is_array=is_array)
    return MessageField(
        name=field.name,
        kafka_type=kafka_type,
        entity=entity,
        is_array=is_array,
        nullable=nullable,
        compact=compact,
        tag=field.metadata.get("tag"),
        default=default,
    )


def _implicit_default(kafka_type: str | None, entity: type[Any] | None, *, is_array: bool) -> Any:
    if is_array:
        return ()
    if entity is not None:
        return entity(**{field.name: field.default for field in message_fields(entity)})
    assert kafka_type is not None
    return _IMPLICIT.get(kafka_type, 0)


class StoredRecord:
    """Base of the structs in the records of internal topics, with the ``repr`` of a dataclass.

    Their modules have up to 20 of them.  With a generated ``repr``, and frozen, such a module takes
    26 ms to import instead of 11, and while it does, a broker serves nobody (ADR 0039).
    """

    __slots__ = ()
    __version__: ClassVar[int] = 0

    def __repr__(self) -> str:
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields)
        return f"{type(self).__name__}({values})"


class StoredKey(StoredRecord):
    """Base of the keys of records; a class of its own has a ``__record_type__``, too."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __flexible__: ClassVar[bool] = False


class StoredValue(StoredRecord):
    """Base of the values of records."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __flexible__: ClassVar[bool] = True


class StoredStruct(StoredRecord):
    """Base of the structs inside values."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = True


Owner = tuple[str, bool]
"""The field that a line of source belongs to, and whether the line is in the loop over it."""


class SourceLines:
    """The lines of a function that is being generated, each with the field that it belongs to.

    If the generated function fails, the number of the line tells the field (`decoder`, `encoder`).
    """

    __slots__ = ("lines", "owner", "owners")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.owners: list[Owner] = []
        self.owner: Owner = ("", False)
        """The owner of the lines that are added next."""

    def add(self, indent: int, *lines: str) -> None:
        """Add lines with one indentation."""
        for line in lines:
            self.lines.append("    " * indent + line)
            self.owners.append(self.owner)

    def compiled(self, name: str, title: str, names: dict[str, Any]) -> Any:
        """Return the function ``name`` that the lines define; ``names`` are those that it needs."""
        code = compile("\n".join(self.lines), f"<{title}>", "exec")
        exec(code, names)  # noqa: S102  The source is made of schema field names alone.
        function = names[name]
        _owners[function.__code__] = self.owners
        return function


_owners: dict[CodeType, list[Owner]] = {}
"""The field that each line of a compiled function belongs to."""


def failed_field(trace: TracebackType | None) -> tuple[str, int]:
    """Return the field that was being read or written, as ``topics[2].name``, and the position.

    A writer has no position: -1.
    """
    path = []
    position = -1
    while trace is not None:
        owners = _owners.get(trace.tb_frame.f_code)
        if owners is not None:
            name, in_loop = owners[trace.tb_lineno - 1]
            frame_locals = trace.tb_frame.f_locals
            path.append(f"{name}[{frame_locals['i']}]" if in_loop else name)
            position = frame_locals.get("p", position)
        trace = trace.tb_next
    return ".".join(path), position


# Kafka 4.4 has error codes that kio does not know. In messages they are plain numbers, and their
# names are those of our classes.

ERROR_CODES: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
"""kio's error codes by number."""

_KAFKAS_NAMES = {int(code.value): code.name.upper() for code in ErrorCode}


def wire_error_code(code: int) -> ErrorCode:
    """Return an error code as messages hold it; a code that kio does not know stays a number."""
    return cast("ErrorCode", ERROR_CODES.get(code, code))


def code_name(error: type[KafkaError]) -> str:
    """Return Kafka's name of an error code, such as NOT_LEADER_OR_FOLLOWER."""
    if error.code in _KAFKAS_NAMES:
        return _KAFKAS_NAMES[error.code]
    return "".join(
        f"_{letter}" if letter.isupper() and index else letter.upper()
        for index, letter in enumerate(error.__name__)
    )
