"""The settings of a `TaskApp`, ``app.conf``: those of Celery that have an effect here, checked.

An unknown setting is an error that names its replacement.  A setting that can have only one value
here, such as ``task_serializer``, is accepted with that value and refused with any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import is_whole, or_none
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.stores.store import Store
from sharegroup.worker.tasks.elsewhere import OF_SETTINGS

CONCURRENCY = 8
PRIORITY_MAX = 255
RESULT_SECONDS = 86_400.0
QUEUE_OPTIONS = ("concurrency", "rate_limit", "redact", "dead_letter", "start_from")
"""The options of a share group's handler that a queue may have."""

Backend = str | Callable[[], Store] | None


def store_of(backend: Backend) -> Store | None:
    """Make the store of a result backend; each application of a process has its own."""
    if backend is None:
        return None
    if callable(backend):
        store = backend()
        if not hasattr(store, "reserve"):
            raise InvalidConfig(f"backend: the function returned {store!r:.80}; expected a store")
        return store
    # Imported here, because each of them needs a client that may not be installed.
    from sharegroup.worker import MemoryStore, PostgresStore, RedisStore, SqliteStore

    scheme, _, rest = backend.partition("://")
    match scheme:
        case "redis" | "rediss" | "unix":
            return RedisStore(backend)
        case "postgresql" | "postgres":
            return PostgresStore(backend)
        case "db+postgresql" | "db+postgresql+psycopg2" | "db+postgresql+psycopg":
            return PostgresStore(f"postgresql://{rest}")
        case "sqlite" | "db+sqlite":
            # As SQLAlchemy writes them: three slashes for a relative path, four for another.
            return SqliteStore(rest.removeprefix("/"))
        case "memory" | "cache+memory":
            return MemoryStore()
    raise InvalidConfig(
        f"result_backend: {_without_password(backend)!r:.120}; expected redis://, postgresql:// or "
        f"sqlite:///, or a function that makes a store; results are not kept in a queue (rpc://) "
        f"or in a cache that forgets them"
    )


def servers_of(broker: str | list[str] | None) -> str | list[str] | None:
    """Return the addresses of brokers; None for those of SHAREGROUP_BOOTSTRAP or the profile."""
    if broker is None or isinstance(broker, list):
        return broker
    if not isinstance(broker, str):
        raise InvalidConfig(f"broker_url: {broker!r:.80}; expected 'host:9092'")
    scheme, separator, rest = broker.partition("://")
    if not separator:
        return broker
    if scheme not in ("kafka", "confluentkafka"):
        raise InvalidConfig(
            f"broker_url: {_without_password(broker)!r:.120}; expected the address of a Kafka "
            f"broker or of `sharegroup serve`, such as 'kafka://127.0.0.1:9092'"
        )
    if "@" in rest:
        raise InvalidConfig(
            "broker_url has a user; expected only addresses: TaskApp(..., client={'sasl_mechanism'"
            ": ..., 'sasl_plain_username': ..., ...})"
        )
    return rest.rstrip("/").replace(";", ",").replace("kafka://", "")


def _without_password(url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0] + "://..."
    return url.replace(password, "...") if password else url


class Settings:
    """The settings of an application, by their names in Celery.

    They are read when the first task is sent or the worker starts; after that only
    ``task_always_eager`` and ``task_eager_propagates`` can be set, as tests do.
    """

    task_always_eager: bool
    task_eager_propagates: bool
    task_default_queue: str
    task_queues: list[str]
    task_queue_max_priority: int | None
    """The highest priority of a task, such as 9; None for queues without priorities."""
    task_routes: dict[str, str]
    """The queue by the name of a task, or by a pattern such as ``shop.mail.*``."""
    task_ignore_result: bool
    task_time_limit: float | None
    result_expires: float
    beat_schedule: dict[str, Any]
    timezone: str
    worker_concurrency: int | str
    worker_enable_remote_control: bool
    queue_options: dict[str, Mapping[str, Any]]
    """The concurrency or the rate limit of a queue; a setting that Celery does not have."""
    include: list[str]
    broker_url: str | list[str] | None
    result_backend: Backend

    _owner: str
    _read_by: str
    """What has read the settings; empty before that."""

    ALWAYS: ClassVar[tuple[str, ...]] = ("task_always_eager", "task_eager_propagates")

    def __init__(self, owner: str) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_read_by", "")
        for name, value in DEFAULTS.items():
            object.__setattr__(self, name, value() if callable(value) else value)

    def __setattr__(self, name: str, value: Any) -> None:
        given = OLD_NAMES.get(name, name)
        refuse_unknown([given], CHECKS, self._owner, OF_SETTINGS, "app.conf")
        if self._read_by and given not in self.ALWAYS:
            raise InvalidConfig(
                f"{self._owner}: {given} was read when {self._read_by}; set it before, next to "
                f"the TaskApp"
            )
        try:
            checked = CHECKS[given](value)
        except (TypeError, ValueError, LookupError, InvalidConfig) as error:
            raise InvalidConfig(f"{self._owner}: {given}: {error}") from error
        object.__setattr__(self, given, checked)

    if not TYPE_CHECKING:  # So a type checker reports an unknown name.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            refuse_unknown([name], CHECKS, self._owner, OF_SETTINGS, "app.conf")
            return None  # One whose value is fixed, and was not set.

    def update(self, *mappings: Mapping[str, Any], **settings: Any) -> None:
        """Set several settings."""
        for given in (*mappings, settings):
            for name, value in given.items():
                setattr(self, name, value)

    __setitem__ = __setattr__

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def close(self, read_by: str) -> None:
        """Note what has read the settings; from then on they stay."""
        object.__setattr__(self, "_read_by", read_by)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.80}; expected True or False")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r:.80}; expected a text")
    return value


def _texts(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{value!r:.80}; expected names: ['one', 'another']")
    names = [getattr(entry, "name", entry) for entry in value]  # A kombu.Queue has a name.
    return [_text(name) for name in names]


def seconds_of(value: object) -> float | None:
    """Return a time as Celery's options have it, a number or a timedelta; None for other types."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return number


def _seconds(value: object) -> float:
    number = seconds_of(value)
    if number is None or not number > 0:
        raise TypeError(f"{value!r:.80}; expected seconds or a timedelta, above 0")
    return float(number)


def _expires(value: object) -> float:
    if value in (None, 0):
        raise ValueError(f"{value!r}; expected a time: results for ever would fill the backend")
    return _seconds(value)


def _zone(value: object) -> str:
    name = _text(getattr(value, "key", value))
    ZoneInfo(name)
    return name


def _only(expected: object, why: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value != expected and list(value if isinstance(value, tuple | set) else ()) != expected:
            raise ValueError(f"{value!r:.80}; expected {expected!r}: {why}")
        return expected

    return check


def _routes(value: object) -> dict[str, str]:
    pairs = value.items() if isinstance(value, Mapping) else value
    if callable(value) or isinstance(value, str) or not isinstance(pairs, Iterable):
        raise TypeError(
            f"{value!r:.80}; expected a dict: {{'shop.mail.*': {{'queue': 'mail'}}}}; in place of "
            f"a function: apply_async(..., queue=...)"
        )
    routes = {}
    for pattern, route in pairs:
        queue = route.get("queue") if isinstance(route, Mapping) else route
        if isinstance(route, Mapping) and set(route) != {"queue"}:
            raise ValueError(f"{pattern!r}: {route!r:.80}; expected {{'queue': 'name'}} alone")
        routes[_text(pattern)] = _text(queue)
    return routes


def _queue_options(value: object) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.80}; expected a dict: {{'mail': {{'concurrency': 4}}}}")
    for queue, options in value.items():
        refuse_unknown(options, QUEUE_OPTIONS, f"queue {queue!r}", {}, "a queue")
    return dict(value)


def _beat(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{value!r:.80}; expected a dict: {{'daily': {{'task': 'shop.tasks.report', "
            f"'schedule': crontab(hour=6, minute=0)}}}}"
        )
    return dict(value)


def _priority(value: object) -> object:
    if not is_whole(value, 1, PRIORITY_MAX):
        raise ValueError(f"{value!r:.80}; expected 1 to {PRIORITY_MAX}, such as 9")
    return value


def _concurrency(value: object) -> object:
    return value  # Checked as the option of a handler.


def _backend(value: object) -> object:
    if not isinstance(value, str | None) and not callable(value):
        raise TypeError(
            f"{value!r:.80}; expected 'redis://...', or a function that makes a store: "
            f"backend=lambda: RedisStore(...), because forked processes need their own"
        )
    return value


_JSON = (
    "only JSON, never pickle: unpickling would run the code of anyone who can write to the topic"
)
_LATE = (
    "a task is always acknowledged after its run, so it may run twice, and is never lost; make it "
    "idempotent (docs/idempotent-handlers.md)"
)
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        (
            *("task_always_eager", "task_eager_propagates", "task_ignore_result"),
            "worker_enable_remote_control",
        ),
        _flag,
    ),
    **dict.fromkeys(("task_serializer", "result_serializer"), _only("json", _JSON)),
    **dict.fromkeys(("accept_content", "result_accept_content"), _only(["json"], _JSON)),
    **dict.fromkeys(("task_acks_late", "task_reject_on_worker_lost"), _only(True, _LATE)),
    "enable_utc": _only(True, "all times are UTC; timezone is that of crontab()"),
    "task_default_queue": _text,
    "task_queues": _texts,
    "task_queue_max_priority": or_none(_priority),
    "task_routes": _routes,
    "task_time_limit": or_none(_seconds),
    "result_expires": _expires,
    "beat_schedule": _beat,
    "timezone": _zone,
    "worker_concurrency": _concurrency,
    "queue_options": _queue_options,
    "include": _texts,
    "broker_url": lambda value: value if servers_of(value) else None,
    "result_backend": _backend,
}
"""For each setting the function that returns its value, or raises what is wrong with it."""

OLD_NAMES: Mapping[str, str] = {
    "imports": "include",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "BROKER_URL": "broker_url",
    "CELERY_RESULT_BACKEND": "result_backend",
}

DEFAULTS: Mapping[str, Any] = {
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_default_queue": "default",
    "task_queues": list,
    "task_queue_max_priority": None,
    "task_routes": dict,
    "task_ignore_result": False,
    "task_time_limit": None,
    "result_expires": RESULT_SECONDS,
    "beat_schedule": dict,
    "timezone": "UTC",
    "worker_concurrency": CONCURRENCY,
    "worker_enable_remote_control": False,
    "queue_options": dict,
    "include": list,
    "broker_url": None,
    "result_backend": None,
}


def read_object(source: object, namespace: str) -> dict[str, Any]:
    """Return the settings of a module or object: all of it, or those named NAMESPACE_SETTING."""
    if isinstance(source, Mapping):
        names = {str(name): value for name, value in source.items()}
    else:
        names = {name: getattr(source, name) for name in dir(source)}
    if namespace:
        prefix = f"{namespace}_"
        return {
            name.removeprefix(prefix).lower(): value
            for name, value in names.items()
            if name.startswith(prefix) and name.isupper()
        }
    return {
        name: value
        for name, value in names.items()
        if not name.startswith("_") and (name in CHECKS or name in OF_SETTINGS or name in OLD_NAMES)
    }
