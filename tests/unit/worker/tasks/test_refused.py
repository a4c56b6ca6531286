"""What a project of Celery's has that is not here is an error that says what to do instead."""

from __future__ import annotations

import decimal
import enum
import importlib
import re
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sharegroup.worker.tasks
from sharegroup.errors import InvalidConfig
from sharegroup.worker import PostgresStore, RedisStore, SqliteStore
from sharegroup.worker.tasks import NotJson, Task, TaskApp, crontab, elsewhere
from sharegroup.worker.tasks.message import plain
from sharegroup.worker.tasks.options import TaskArguments
from sharegroup.worker.tasks.settings import CHECKS, DEFAULTS, read_object, servers_of, store_of
from sharegroup.worker.tasks.task import CALL_OPTIONS


class Colour(enum.IntEnum):
    RED = 1


@dataclass
class Point:
    x: int


class Row:
    pk = 7


def an_app() -> TaskApp:
    return TaskApp("shop", backend="memory://")


def a_task(**options: Any) -> Task[..., Any]:
    @an_app().task(name="shop.add", **options)
    def add(x: int, y: int = 0) -> int:
        return x + y

    return add


@pytest.mark.parametrize("name", ["chain", "chord", "group", "signature", "chunks"])
def test_canvas_is_refused_at_the_import(name: str) -> None:
    with pytest.raises(ImportError, match=r"workflows are not built .*send .*\.delay") as refused:
        exec(f"from sharegroup.worker.tasks import {name}")
    assert refused.value.name == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TimeoutError", "Python's own TimeoutError"),
        ("OperationalError", "sharegroup.errors.KafkaError"),
        ("states", "the texts of AsyncResult.state"),
        ("task_failure", "app.worker_app.on('record.failed')"),
        ("worker_process_init", "@app.worker_app.on_startup"),
    ],
)
def test_names_of_celerys_exceptions_states_and_signals_say_what_to_use(
    name: str, text: str
) -> None:
    with pytest.raises(ImportError, match=re.escape(text)):
        exec(f"from sharegroup.worker.tasks import {name}")


def test_other_names_are_missing_as_in_every_module() -> None:
    assert not hasattr(sharegroup.worker.tasks, "nothing")
    for name in sharegroup.worker.tasks.__all__:
        assert getattr(sharegroup.worker.tasks, name) is not None
    assert set(elsewhere.OF_THE_MODULE).isdisjoint(sharegroup.worker.tasks.__all__)
    importlib.import_module("sharegroup.worker.tasks")


def test_no_table_names_what_is_there() -> None:
    assert set(elsewhere.OF_A_TASK).isdisjoint(TaskArguments.__annotations__)
    assert set(elsewhere.OF_A_CALL).isdisjoint(CALL_OPTIONS)
    assert set(elsewhere.OF_SETTINGS).isdisjoint(CHECKS)
    task = a_task()
    assert not any(hasattr(type(task), name) for name in elsewhere.OF_TASKS)
    assert not any(hasattr(TaskApp, name) for name in elsewhere.OF_A_TASK_APP)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: a_task().s(1), r"'s'; workflows"),
        (lambda: a_task().si(1), "workflows"),
        (lambda: a_task().chunks([1], 10), "send each task"),
        (lambda: a_task().update_state(state="PROGRESS"), "progress in your database"),
        (lambda: a_task().apply_async((1,), link=a_task()), "link is not an option of a call"),
        (lambda: a_task().apply_async((1,), priority=3), "task_queue_max_priority = 9"),
        (lambda: a_task().apply_async((1,), serializer="pickle"), "never pickle"),
        (lambda: a_task().apply_async((1,), queue="mial"), "there is no queue 'mial'"),
        (lambda: a_task().apply_async((1,), cuontdown=3), "did you mean countdown"),
        (lambda: a_task().apply_async((1,), task_id="a/b"), "letters, digits"),
        (lambda: a_task().apply_async("abc"), r"expected a tuple or a list: args=\(value,\)"),
        (lambda: a_task().apply_async((1,), countdown="3s"), "expected seconds or a timedelta"),
        (lambda: a_task().delay(), r"shop\.add\(x: 'int', y: 'int' = 0\) got .*missing a required"),
        (lambda: a_task(rate_limit="10/m"), "queue_options"),
        (lambda: a_task(soft_time_limit=3), "time_limit=seconds"),
        (lambda: a_task(base=object), "plain functions"),
        (lambda: a_task(acks_late=False), "always acknowledged after its run"),
        (lambda: a_task(serializer="pickle"), "never pickle"),
        (lambda: a_task(track_started=True), "no state STARTED"),
        (lambda: a_task(max_retries=-1), "expected 0 to"),
        (lambda: a_task(autoretry_for="ValueError"), "expected classes of exceptions"),
        (lambda: a_task(time_limit=0), "expected more than 0"),
        (lambda: a_task(bind=1), "expected True or False"),
        (lambda: a_task(retry_kwargs={"max_retry": 3}), "did you mean max_retries"),
        (lambda: an_app().task(Row), r"a class becomes a function with bind=True"),
        (lambda: an_app().control, "worker status, quiet"),
        (lambda: an_app().add_periodic_task, "beat_schedule"),
        (lambda: an_app().AsyncResult("x").children, "workflows"),
        (lambda: an_app().AsyncResult("x").revoke(terminate=True), "option time_limit"),
        (lambda: an_app().AsyncResult("x").revoke(reply=True), "reply; it has no options"),
        (lambda: an_app().AsyncResult("x").get(disable_sync_subtasks=False), "stops all workers"),
        (lambda: TaskApp("shop", broker="amqp://u:secret@mq//"), r"u:\.\.\.@mq.*Kafka"),
        (lambda: TaskApp("shop", broker="kafka://u:p@host:1"), "sasl_mechanism"),
        (lambda: TaskApp("shop", backend="rpc://").worker_app, r"redis://, postgresql://"),
        (lambda: TaskApp("shop", backend=RedisStore("redis://h")), "makes a store"),
        (lambda: TaskApp("shop", set_as_current=True), "made last"),
        (lambda: TaskApp("shop", bootstrap_servers="h:1"), "broker='host:9092'"),
        (lambda: an_app().autodiscover_tasks("shop"), r"expected a list: \['shop'\]"),
        (lambda: crontab(day_of_month="1", day_of_week="mon"), "for Celery both must hold"),
        (lambda: crontab(second=3), "unknown option second"),
    ],
)
def test_call_says_what_to_do_instead(call: Callable[[], object], text: str) -> None:
    with pytest.raises((AttributeError, InvalidConfig, TypeError, ValueError), match=text):
        call()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"task_serializer": "pickle"}, "never pickle"),
        ({"accept_content": ["pickle", "json"]}, "never pickle"),
        ({"task_acks_late": False}, "may run twice"),
        ({"worker_prefetch_multiplier": 1}, "fetches what its tasks can start now"),
        ({"broker_transport_options": {}}, "there is no visibility_timeout"),
        ({"task_routes": {"a.*": {"exchange": "x"}}}, "alone"),
        ({"task_routes": lambda *_: None}, r"apply_async\(\.\.\., queue=\.\.\.\)"),
        ({"result_expires": None}, "would fill the backend"),
        ({"timezone": "Europe/Berln"}, "timezone"),
        ({"task_default_quue": "x"}, "did you mean task_default_queue"),
        ({"queue_options": {"mail": {"retry": 3}}}, "unknown option retry"),
        ({"task_queues": "mail"}, r"expected names"),
        ({"task_queue_max_priority": True}, "expected 1 to 255"),
        ({"task_always_eager": 1}, "expected True or False"),
    ],
)
def test_setting_says_what_to_do_instead(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        an_app().conf.update(settings)


def test_settings_are_fixed_once_they_are_read() -> None:
    app = an_app()
    assert app.worker_app.name == "shop"
    with pytest.raises(InvalidConfig, match="was read when the worker's application was declared"):
        app.conf.timezone = "UTC"
    app.conf.task_always_eager = True
    assert app.conf["task_always_eager"] is True
    assert DEFAULTS.keys() < CHECKS.keys()


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"task": "shop.ad", "schedule": 10}, "no task 'shop.ad'; did you mean 'shop.add'"),
        ({"task": "shop.add", "schedule": "10s", "args": [1]}, "expected crontab"),
        ({"task": "shop.add"}, "it has no 'schedule'"),
        ({"task": "shop.add", "schedule": 10, "args": (1, 2, 3)}, "too many positional"),
        ({"task": "shop.add", "schedule": 10, "relative": True}, "counts from 1970"),
        ({"task": "shop.add", "schedule": 10, "options": {"link": 1}}, "workflows"),
        ({"task": "x", "schedule": 10, "options": {"queue": "y"}}, "there is no queue 'y'"),
        ("daily", "expected a dict"),
    ],
)
def test_schedule_says_what_is_wrong(entry: Any, text: str) -> None:
    task = a_task()
    task.app.conf.beat_schedule = {"daily": entry}
    with pytest.raises((InvalidConfig, TypeError), match=text):
        _ = task.app.worker_app


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.now(UTC), "isoformat"),
        (timedelta(1), "total_seconds"),
        (decimal.Decimal(1), r"str\(value\), and make a Decimal"),
        (uuid.uuid4(), "make a UUID"),
        (Colour.RED, r"value\.value"),
        ({1}, "send a list"),
        (b"x", "base64"),
        (ValueError(), r"str\(error\)"),
        (Row(), r"value\.pk"),
        (Point(1), "asdict"),
        (float("nan"), "no such number"),
        ({1: 2}, r"key 1 of type int.*str\(key\)"),
        (object(), "an id of what the task reads"),
        ([{"a": (1, {2})}], r"at\[0\]\['a'\]\[1\] is of type builtins\.set"),
    ],
)
def test_value_that_json_does_not_have_is_refused(value: object, text: str) -> None:
    with pytest.raises(NotJson, match=text):
        plain(value, "at")


def test_json_values_stay_and_tuples_become_lists() -> None:
    value = {"a": [1, 2.5, None, True, "ä"], "b": (1, (2,))}
    assert plain(value, "at") == {"a": [1, 2.5, None, True, "ä"], "b": [1, [2]]}
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJson, match="more than 100"):
        plain(endless, "at")


def test_addresses_and_backends_are_read() -> None:
    assert servers_of("kafka://a:1;kafka://b:2/") == "a:1,b:2"
    assert servers_of("a:1") == "a:1"
    assert servers_of(None) is None
    assert isinstance(store_of("redis://localhost"), RedisStore)
    assert isinstance(store_of("db+postgresql://u@h/d"), PostgresStore)
    sqlite = store_of("db+sqlite:///results.db")
    assert isinstance(sqlite, SqliteStore)
    assert sqlite._path == "results.db"
    with pytest.raises(InvalidConfig, match="expected a store"):
        store_of(lambda: 3)  # type: ignore[arg-type,return-value]


def test_settings_of_django_have_a_prefix() -> None:
    settings = types.SimpleNamespace(
        CELERY_TASK_ALWAYS_EAGER=True, CELERY_TIMEZONE="Europe/Berlin", DEBUG=True
    )
    app = an_app()
    app.config_from_object(settings, namespace="CELERY")
    assert (app.conf.task_always_eager, app.conf.timezone) == (True, "Europe/Berlin")
    assert read_object({"timezone": "UTC", "other": 1}, "") == {"timezone": "UTC"}


def test_settings_are_named_by_a_module_or_a_name_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_settings.py").write_text("timezone = 'UTC'\nclass Live: timezone = 'UTC'\n")
    for name in ("shop_settings", "shop_settings.Live", "shop_settings:Live"):
        app = an_app()
        app.conf.timezone = "Europe/Berlin"
        app.config_from_object(name)
        assert app.conf.timezone == "UTC"
    (tmp_path / "broken_settings").mkdir()
    (tmp_path / "broken_settings" / "live.py").write_text("import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"):
        an_app().config_from_object("broken_settings.live")


def test_two_tasks_of_one_name_are_refused() -> None:
    app = an_app()
    app.task(name="same")(lambda: None)

    def other() -> None: ...

    with pytest.raises(InvalidConfig, match=r"declared twice: .*<lambda> and .*other"):
        app.task(name="same")(other)
