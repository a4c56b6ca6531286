"""Options of the format ``kafka-share``, with the names and meanings of Spark's own Kafka source.

Three tables list the options of a streaming read, a batch read and a write.  Any other option is
refused, because a user loses much time with an option that is silently ignored.  The error names
the most similar option.  For options of Spark's Kafka source that do not apply to share groups, it
says what to use instead.

``kafka.`` options are passed to the client under Kafka's own names.  Spark passes all names in
lower case.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sharegroup.client.settings.client_config import ClientConfig, ProducerConfig, config_from
from sharegroup.client.settings.kafka_properties import client_options, knows_property, nearest
from sharegroup.errors import InvalidConfig
from sharegroup.escaping import shortened

EARLIEST = -2
LATEST = -1
"""EARLIEST and LATEST have the values of Spark's Kafka source in JSON offsets."""
TIME_MAX = 2**63 - 1
VALUE_CHARACTERS_MAX = 200
"""Maximum number of characters of an option that its error shows."""

SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = (SHARE_STATE_TOPIC, "__consumer_offsets", "__transaction_state")
RECORDS, SHARE_PARTITIONS, GROUP_RUNS = VIEWS = ("records", "sharePartitions", "groupRuns")
"""A row of the format ``kafka-share-state`` is a record, a stored run, or a present run."""
KEPT_BYTES_MAX = 1024 * 1024 * 1024
"""Default of ``keptBytesMax``, the maximum size of the kept records of a batch."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

PerPartition = Mapping[str, Mapping[int, int]]
"""A number for each partition, by topic and partition."""

OffsetsOption = int | PerPartition
"""EARLIEST or LATEST for all partitions, or an offset (or one of these) for each partition."""


@dataclass(frozen=True, slots=True)
class Times:
    """Offsets by time: the first record of each partition with this timestamp or a later one."""

    milliseconds: int | PerPartition
    """Milliseconds since 1970, for all partitions or for each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The common options of streaming and batch reads."""

    topics: tuple[str, ...]
    client: Mapping[str, Any] = field(repr=False)
    """Keyword arguments of the client's classes; they may include passwords."""
    include_headers: bool = False
    include_delivery_count: bool = False
    fail_on_data_loss: bool = True
    fail_on_unreadable: bool = True
    partitions_min: int | None = None
    """Approximate minimum number of tasks; None for as few as the rows need."""
    records_per_partition_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(ReadOptions):
    """The options of a streaming read, which is one member of the share group."""

    group: str
    records_per_trigger_max: int | None = None
    kept_bytes_max: int = KEPT_BYTES_MAX
    """Maximum size of the kept records of a batch; 0 if executors fetch all records."""
    reports_states: bool = False
    """Whether progress reports have the numbers of the group's records by state."""
    outcomes_location: str | None = None
    """The directory of the files with per-row outcomes; None for the default directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(ReadOptions):
    """The options of a batch read: plain offsets, no share group."""

    starting: OffsetsOption | Times = EARLIEST
    ending: OffsetsOption | Times = LATEST
    late_start_is_latest: bool = False
    """Whether a partition whose records are all older than its starting time has no rows.  Without
    it this is an error."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions to read by topic; all partitions of a topic that is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersOptions(BatchOptions):
    """The options of a read of dead letters."""

    complete_records: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions(BatchOptions):
    """The options of a read of internal topics."""

    view: str = RECORDS
    """The meaning of a row: one of `VIEWS`."""
    group: str | None = None
    """The share group of the view `GROUP_RUNS`; its ``topics`` are empty for all of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    client: Mapping[str, Any] = field(repr=False)
    topic: str | None = None
    """The topic for all rows; None if each row names its topic in the column ``topic``."""


class Option(NamedTuple):
    """An option of the format: its name, and the field of the options class that it sets."""

    name: str
    field: str
    parse: Callable[[str], Any]
    default: str
    """The default in words, in Markdown, for docs/spark-options.md."""
    text: str
    """The meaning in words, for the same page."""
    aliases: tuple[str, ...] = ()


def _positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("expected a whole number of 1 or more")
    return int(text)


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("expected a whole number of 0 or more")
    return int(text)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.strip().lower() == "true"


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text.strip()


def _directory(text: str) -> str:
    """Parse a directory of this machine; a relative one is below the working directory."""
    if _URI.match(text.strip()):
        # `Path` would take it for a relative directory such as ``hdfs:/...``.
        raise ValueError("expected a directory of the driver's machine, found a URI")
    # Absolute here, in the process that plans the query: the program that calls `foreachBatch` may
    # have changed its directory, and each executor has one of its own.
    return os.path.abspath(_text(text))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError("expected topic names with commas between them")
    return topics


def _offsets(text: str) -> OffsetsOption:
    """Parse ``earliest``, ``latest``, or JSON as in ``{"topic": {"0": 23, "1": -2}}``."""
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    try:
        return _per_partition(text)
    except ValueError:
        raise ValueError(
            'expected earliest, latest or JSON like {"orders": {"0": 23, "1": -2}}'
        ) from None


def _per_partition(text: str) -> PerPartition:
    """Parse a number for each partition. ValueError if the JSON has another form."""
    try:
        return {
            topic: {int(partition): _integer(number) for partition, number in partitions.items()}
            for topic, partitions in json.loads(text).items()
        }
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _integer(number: Any) -> int:
    """Return a number of a JSON document. TypeError for a fraction, which `int` would cut."""
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise TypeError(f"expected a whole number, found {number!r:.80}")
    return int(number)


def _assigned(text: str) -> Mapping[str, tuple[int, ...]]:
    """Parse JSON as in ``{"orders": [0, 2]}``."""
    try:
        assigned = {
            topic: tuple(sorted(map(_integer, set(_array(partitions)))))
            for topic, partitions in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        assigned = {}
    if not assigned or not all(partitions[:1] >= (0,) for partitions in assigned.values()):
        raise ValueError('expected partitions by topic, as {"orders": [0, 2]}')
    return assigned


def _array(numbers: Any) -> list[Any]:
    """Return an array of a JSON document. TypeError for a text, whose digits are iterable, too."""
    if not isinstance(numbers, list):
        raise TypeError(f"expected an array, found {numbers!r:.80}")
    return numbers


def _time(text: str) -> Times:
    if not text.strip().isdecimal():
        raise ValueError("expected milliseconds since 1970, as 1767225600000")
    return _checked_times(Times(int(text)), [int(text)])


def _times(text: str) -> Times:
    expected = 'expected milliseconds since 1970 as {"orders": {"0": 1767225600000}}'
    try:
        times = _per_partition(text)
    except ValueError:
        raise ValueError(expected) from None
    all_times = [time for partitions in times.values() for time in partitions.values()]
    if min(all_times, default=0) < 0:
        raise ValueError(f"{expected}; found {min(all_times)}")
    return _checked_times(Times(times), all_times)


def _checked_times(times: Times, all_times: Iterable[int]) -> Times:
    latest = max(all_times, default=0)
    if latest > TIME_MAX:
        raise ValueError(f"expected milliseconds since 1970, up to {TIME_MAX}; found {latest}")
    return times


def _view(text: str) -> str:
    views = {view.lower(): view for view in VIEWS}
    if (view := views.get(text.strip().lower())) is None:
        raise ValueError(f"expected one of {', '.join(VIEWS)}")
    return view


def _late_start(text: str) -> bool:
    if text.strip().lower() not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return text.strip().lower() == "latest"


def _starting(text: str) -> OffsetsOption:
    offsets = _offsets(text)
    if offsets == LATEST:
        raise ValueError("a batch read from the latest offset has no rows; expected earliest")
    return offsets


def _ending(text: str) -> OffsetsOption:
    offsets = _offsets(text)
    if offsets == EARLIEST:
        raise ValueError("a batch read to the earliest offset has no rows; expected latest")
    return offsets


_READ = (
    Option("subscribe", "topics", _topics, "required", "names of the topics, with commas between"),
    Option(
        *("includeHeaders", "include_headers", _boolean, "`false`"),
        "adds the column `headers`: `array<struct<key:string,value:binary>>`",
    ),
    Option(
        *("includeDeliveryCount", "include_delivery_count", _boolean, "`false`"),
        "adds the column `deliveryCount`, 1 for the first delivery",
        aliases=("deliveryCount",),
    ),
    Option(
        *("failOnDataLoss", "fail_on_data_loss", _boolean, "`true`"),
        "whether the query ends if a record is deleted before it is read, and a stream of a share "
        "group if files of `outcomesLocation` are missing",
    ),
    Option(
        *("failOnUnreadable", "fail_on_unreadable", _boolean, "`true`"),
        "whether the query ends if the batch of a record cannot be read; `false` leaves its rows "
        "out with a warning, and a stream of a share group rejects its offsets",
    ),
    Option(
        *("minPartitions", "partitions_min", _positive, "one task for each 10,000 rows"),
        "approximate minimum number of tasks for a batch",
    ),
    Option(
        *("maxRecordsPerPartition", "records_per_partition_max", _positive, "no limit"),
        "maximum number of rows for each task",
    ),
)
_GROUP = Option(
    *("share.group", "group", _text, "required"),
    "name of the share group; the query is one member",
    aliases=("kafka.share.group.id", "kafka.group.id"),
)
STREAM = (
    *_READ,
    _GROUP,
    Option(
        *("maxOffsetsPerTrigger", "records_per_trigger_max", _positive, "no limit"),
        "approximate maximum number of records for a batch; brokers return whole record batches",
    ),
    Option(
        *("keptBytesMax", "kept_bytes_max", _whole, f"{KEPT_BYTES_MAX:,} (1 GiB)"),
        "with Apache Kafka: maximum size of the records that the driver keeps of a batch, for "
        "executors on its own machine; `0`: executors fetch all records, as with our broker",
    ),
    Option(
        *("reportStates", "reports_states", _boolean, "`false`"),
        "adds the numbers of the group's available, acquired, delayed and archiving records to "
        "progress reports; on our broker only, which lists them",
    ),
    Option(
        *("outcomesLocation", "outcomes_location", _directory, "`~/.local/state/sharegroup/spark`"),
        "directory of the files with outcomes for rows; beside the checkpoint if the driver may "
        "move to another machine",
    ),
)
BATCH = (
    *_READ,
    Option(
        *("assign", "assigned", _assigned, "not set"),
        'partitions to read, instead of `subscribe`: JSON as `{"orders": [0, 2]}`',
    ),
    Option(
        *("startingOffsets", "starting", _starting, "`earliest`"),
        'first offsets: `earliest`, or JSON as `{"orders": {"0": 23, "1": -2}}`',
    ),
    Option(
        *("startingTimestamp", "starting", _time, "not set"),
        "starts at the first record of each partition with this time (milliseconds since 1970) or "
        "a later one",
    ),
    Option(
        *("startingOffsetsByTimestamp", "starting", _times, "not set"),
        'the same by partition: JSON as `{"orders": {"0": 1767225600000}}`',
    ),
    Option(
        *("startingOffsetsByTimestampStrategy", "late_start_is_latest", _late_start, "`error`"),
        "if all records of a partition are older than its starting time: `error`, or `latest` for "
        "no rows of this partition",
    ),
    Option(
        *("endingOffsets", "ending", _ending, "`latest`"),
        "end offsets, which are not read: `latest`, or JSON",
    ),
    Option(
        *("endingTimestamp", "ending", _time, "not set"),
        "ends before the first record of each partition with this time or a later one, or at the "
        "latest offset if there is none",
    ),
    Option(
        *("endingOffsetsByTimestamp", "ending", _times, "not set"),
        "the same by partition: JSON",
    ),
)
_LETTERS_COLUMNS = ("includeHeaders", "includeDeliveryCount")
LETTERS = (
    *(option for option in BATCH if option.name not in _LETTERS_COLUMNS),
    Option(
        *("completeRecords", "complete_records", _boolean, "`true`"),
        "for a broker's dead letter without its record: whether to read the record from its topic",
    ),
)
STATE = (
    Option(
        *("view", "view", _view, "`records`"),
        "`records` of the topics; `sharePartitions`: the stored state of share partitions; or "
        "`groupRuns`: the present state of a group, from our broker",
    ),
    _GROUP._replace(default="not set", text="with `view=groupRuns`: name of the share group"),
    *(
        option._replace(
            default=f"`{SHARE_STATE_TOPIC}`",
            text="names of internal topics, with commas between; with `view=groupRuns` of topics "
            "of the group, all of them by default",
        )
        if option.name == "subscribe"
        else option
        for option in BATCH
        if option.name not in _LETTERS_COLUMNS
    ),
)
SINK = (
    Option(
        *("topic", "topic", _text, "the column `topic`"),
        "topic of all rows; without it each row names its own",
    ),
)

_KAFKA = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode"}
"""Options that Spark's writer passes to every sink."""

_NO_START = (
    "a share group keeps its own position; "
    "the group config share.auto.offset.reset says where a new one starts"
)
_NO_PATTERN = "share groups subscribe to topics by name: use subscribe"
_RAW = "keys and values are columns of bytes; cast them in the query"
_REFUSED_ANYWHERE = {
    "subscribepattern": _NO_PATTERN,
    "groupidprefix": "the group's name is share.group",
    "minoffsetspertrigger": "a batch starts as soon as there are records: lengthen the trigger",
    "maxtriggerdelay": "a batch starts as soon as there are records: lengthen the trigger",
    "path": "topics are named by subscribe, or topic in a write; load and save take no path",
    "kafka.auto.offset.reset": _NO_START,
    "kafka.isolation.level": "set the group config share.isolation.level instead",
    "kafka.enable.auto.commit": "records are accepted when their batch is committed",
    "kafka.key.deserializer": _RAW,
    "kafka.value.deserializer": _RAW,
    "kafka.key.serializer": _RAW,
    "kafka.value.serializer": _RAW,
}
_NO_END = "a streaming read has no end; use spark.read, or the trigger availableNow"
_REFUSED_IN_STREAM = {"assign": _NO_PATTERN} | {
    option.name.lower(): _NO_START if option.name.startswith("starting") else _NO_END
    for option in BATCH
    if option.name.startswith(("starting", "ending"))
}
_REFUSED_IN_BATCH = {
    name.lower(): "a batch read acquires nothing: use readStream with the trigger availableNow"
    for option in STREAM
    if option not in _READ
    for name in (option.name, *option.aliases)
}
_ENDINGS = {option.name.lower() for option in BATCH if option.field == "ending"}
_REFUSED_IN_LETTERS = {
    name.lower(): "dead letters are read from plain offsets, without a group"
    for name in (_GROUP.name, *_GROUP.aliases)
} | dict.fromkeys(
    (name.lower() for name in _LETTERS_COLUMNS), "a row of a dead letter always has this column"
)
_REFUSED_IN_SINK = {
    name.lower(): "this is an option of reads"
    for option in (*STREAM, *BATCH)
    for name in (option.name, *option.aliases)
}


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of ``spark.readStream``. InvalidConfig if one is wrong or missing."""
    parsed = _parse(given, STREAM, _REFUSED_ANYWHERE | _REFUSED_IN_STREAM, ClientConfig)
    _require(parsed, "topics", "subscribe")
    _require(parsed, "group", "share.group")
    return SourceOptions(**parsed)


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Return the options of ``spark.read``. InvalidConfig if one is wrong or missing."""
    return BatchOptions(**_log_options(given, BATCH, _REFUSED_IN_BATCH, is_stream=False))


def _log_options(
    given: Mapping[str, str],
    options: Iterable[Option],
    refused: Mapping[str, str],
    *,
    is_stream: bool,
) -> dict[str, Any]:
    """Return the parsed options of a read of plain offsets; a stream of them has no end."""
    if is_stream:
        options = [option for option in options if option.field != "ending"]
        refused = {**refused, **dict.fromkeys(_ENDINGS, _NO_END)}
    parsed = _parse(given, options, _REFUSED_ANYWHERE | dict(refused), ClientConfig)
    if "assigned" in parsed:
        if "topics" in parsed:
            raise InvalidConfig(
                "the options subscribe and assign are both set; expected one of them: remove "
                "subscribe to read only the partitions of assign"
            )
        parsed["topics"] = tuple(parsed["assigned"])
    _require(parsed, "topics", "subscribe")
    return parsed


def letters_options(given: Mapping[str, str], *, is_stream: bool = False) -> LettersOptions:
    """Return the options of a read of dead letters. InvalidConfig if one is wrong or missing."""
    return LettersOptions(**_log_options(given, LETTERS, _REFUSED_IN_LETTERS, is_stream=is_stream))


def state_options(given: Mapping[str, str], *, is_stream: bool = False) -> StateOptions:
    """Return the options of a read of internal topics. InvalidConfig if one is wrong or missing."""
    topics: dict[str, str] = {}
    if not {"subscribe", "assign"} & {name.lower() for name in given}:
        topics = {"subscribe": SHARE_STATE_TOPIC}
    parsed = _log_options({**given, **topics}, STATE, _REFUSED_IN_LETTERS, is_stream=is_stream)
    options = StateOptions(**parsed)
    if (options.view == GROUP_RUNS) != (options.group is not None):
        raise InvalidConfig(
            f"expected view={GROUP_RUNS} with the option {_GROUP.name}, and no other view with it"
        )
    if options.view != RECORDS:
        _check_present_state(options, parsed, is_stream=is_stream)
    if options.view == GROUP_RUNS:
        return replace(options, topics=()) if topics else options
    if unknown := set(options.topics) - set(INTERNAL_TOPICS):
        raise InvalidConfig(
            f"topic {min(unknown)!r} is no internal topic; expected {', '.join(INTERNAL_TOPICS)}; "
            "the format kafka-share reads other topics"
        )
    if options.view == SHARE_PARTITIONS and options.topics != (SHARE_STATE_TOPIC,):
        raise InvalidConfig(
            f"view=sharePartitions shows the topic {SHARE_STATE_TOPIC}; expected no other topics, "
            f"found {', '.join(options.topics)}"
        )
    return options


def _check_present_state(
    options: StateOptions, parsed: Mapping[str, Any], *, is_stream: bool
) -> None:
    """Raise InvalidConfig unless the whole state is read, once."""
    if is_stream:
        raise InvalidConfig(
            f"view={options.view} shows the state at one moment, so it is for spark.read; "
            "expected view=records in a stream"
        )
    parts = {"starting", "ending", "assigned"} & parsed.keys()
    if parts:
        raise InvalidConfig(
            f"view={options.view} needs all records; expected no options for the start, the end or "
            "the partitions: remove startingOffsets, endingOffsets, assign and their like"
        )


def sending_client(given: Mapping[str, str]) -> dict[str, Any]:
    """Return ``kafka.`` options as arguments of a producer. InvalidConfig for another option."""
    client: dict[str, Any] = _parse(given, (), _REFUSED_ANYWHERE, ProducerConfig)["client"]
    return client


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of ``df.write`` and ``df.writeStream``. InvalidConfig if one is wrong."""
    return SinkOptions(**_parse(given, SINK, _REFUSED_ANYWHERE | _REFUSED_IN_SINK, ProducerConfig))


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming or batch read.

    Spark asks for the schema before it says which of the two it will be.
    """
    group_names = {name.lower() for name in (_GROUP.name, *_GROUP.aliases)}
    is_stream = any(name.lower() in group_names for name in given)
    return stream_options(given) if is_stream else batch_options(given)


def _parse(
    given: Mapping[str, str],
    options: Iterable[Option],
    refused: Mapping[str, str],
    client: type[ClientConfig],
) -> dict[str, Any]:
    option_of_name = {
        name.lower(): option for option in options for name in (option.name, *option.aliases)
    }
    parsed: dict[str, Any] = {}
    name_of_field: dict[str, str] = {}
    properties: dict[str, str] = {}
    lowered = _lowered(given)
    for name, text in lowered.items():
        if name in _SPARKS_OWN:
            continue
        if (option := option_of_name.get(name)) is not None:
            value = _value(option, name, text)
            # Two names with one value contradict nothing; programs that set both are left alone.
            if option.field in name_of_field and parsed[option.field] != value:
                other = name_of_field[option.field]
                raise InvalidConfig(
                    f"option {name}={text!r} sets the same value as {other}={lowered[other]!r}; "
                    f"expected one value: remove one of the options, for instance {name}"
                )
            name_of_field[option.field] = name
            parsed[option.field] = value
        elif (hint := refused.get(name)) is not None:
            raise InvalidConfig(f"option {name} is not supported here: {hint}")
        elif name.startswith(_KAFKA):
            properties[name.removeprefix(_KAFKA)] = text
        else:
            raise InvalidConfig(f"unknown option {name}{_nearest(name, option_of_name)}")
    parsed["client"] = _client(properties, client)
    return parsed


def _client(properties: Mapping[str, str], kind: type[ClientConfig]) -> dict[str, Any]:
    """Check the ``kafka.`` options and return them as keyword arguments of the client."""
    for name in properties:
        if not knows_property(name, kind):
            raise InvalidConfig(f"unknown option {_KAFKA}{name}{nearest(name, kind, _KAFKA)}")
    try:
        options = client_options(properties, kind)
    except InvalidConfig as error:
        raise InvalidConfig(f"option {_KAFKA}{error}") from None
    if "bootstrap_servers" not in options:
        raise InvalidConfig(f"option {_BOOTSTRAP} is missing: expected host:port[,host:port]")
    # For its checks alone: the clients are made later, in other processes, where an error would
    # appear as a failed task.
    config_from(kind, options)
    return options


def _lowered(given: Mapping[str, object]) -> dict[str, str]:
    """Return the options by their names in lower case."""
    # Spark passes texts in lower case, but `write_in_transaction` and `redrive` get options from
    # the program: of any case, and numbers as PySpark's `options` takes them.
    lowered: dict[str, str] = {}
    for name, value in given.items():
        text = _option_text(name, value)
        if lowered.setdefault(name.lower(), text) != text:
            # Without the values: they may be passwords.
            raise InvalidConfig(f"option {name.lower()} is set twice, in upper and lower case")
    return lowered


def _option_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidConfig(f"option {name}: expected a text, found {type(value).__name__}")


def _require(parsed: Mapping[str, Any], field_name: str, option: str) -> None:
    if field_name not in parsed:
        raise InvalidConfig(f"option {option} is missing")


def _value(option: Option, name: str, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        # Shortened, because a long text would push what was expected out of the error.
        shown = shortened(text, VALUE_CHARACTERS_MAX)
        raise InvalidConfig(f"option {name}={shown!r}: {error}") from None


def _nearest(name: str, option_of_name: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(name, [*option_of_name, _BOOTSTRAP], n=1)
    if not near:
        return ""
    option = option_of_name.get(near[0])
    return f"; did you mean {_BOOTSTRAP if option is None else option.name}?"
