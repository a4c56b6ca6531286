"""OPTIONS of the backend: all problems are found at once, and each says what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.django.options import NO_RETRY, TaskOptions, read_options


def problem(**options: Any) -> str:
    found, problems = read_options(options, {"default"})
    assert found is None
    (text,) = problems
    return text


def test_defaults_need_no_options() -> None:
    assert read_options({}, {"default"}) == (TaskOptions(), [])
    assert TaskOptions().retry is NO_RETRY


def test_retry_is_given_as_a_dict_with_paths_of_classes() -> None:
    options, problems = read_options(
        {"retry": {"max_attempts": 3, "retry_on": ["OSError", "json.JSONDecodeError"]}}, ["a"]
    )
    assert problems == []
    assert options is not None
    assert options.retry.max_attempts == 3
    assert options.retry.applies_to(ConnectionError())
    assert not options.retry.applies_to(KeyError())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurency": 1}, "no option 'concurency'; did you mean 'concurrency'?"),
        ({"zzz": 1}, "the options are name, database"),
        ({"concurrency": True}, "concurrency: expected 1 to 1000, got True"),
        ({"concurrency": 1001}, "concurrency: expected 1 to 1000"),
        ({"name": "a b"}, "name: App name 'a b'"),
        ({"database": ""}, "database: expected a text"),
        ({"bootstrap_servers": []}, "bootstrap_servers: expected 'host:port'"),
        ({"client": "a"}, "client: expected a dict"),
        ({"retry": 3}, "retry: expected a dict as {'max_attempts': 5}, got 3"),
        ({"retry": {"attempts": 3}}, "retry: "),
        ({"retry": {"max_attempts": 1001}}, "retry: max_attempts=1001; expected up to 1000"),
        ({"retry": {"retry_on": ["no.Such"]}}, "retry: 'no.Such': no such exception class"),
        ({"retry": {"retry_on": ["os.getcwd"]}}, "retry: Retry: retry_on has"),
        ({"retry": {"retry_on": [""]}}, "retry: '': no such exception class"),
        ({"max_handling": 0}, "max_handling: expected more than 0"),
        ({"max_handling": "soon"}, "max_handling: a duration"),
        ({"grace": None}, "grace: "),
        ({"result_bytes_max": 0}, "result_bytes_max: expected 1 to 16777216"),
        ({"announce": 1}, "announce: expected True or False"),
        ({"replication_factor": 0}, "replication_factor: expected 1 to 32767"),
    ],
)
def test_wrong_option_is_a_problem(options: dict[str, Any], text: str) -> None:
    assert text in problem(**options)


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ([], "QUEUES: expected one or more"),
        (["a b"], "QUEUES: 'a b': share group"),
        ([7], "QUEUES: 7: expected a text"),
        (["x" * 300], "expected 1 to 220"),
    ],
)
def test_wrong_queues_are_a_problem(queues: list[Any], text: str) -> None:
    assert text in read_options({}, queues)[1][0]


def test_all_problems_are_found_at_once() -> None:
    options, problems = read_options({"a": 1, "concurrency": 0, "name": ""}, [])
    assert options is None
    assert len(problems) == 4


def test_options_that_are_no_dict_are_a_problem() -> None:
    assert read_options(["name"], {"a"})[1] == ["OPTIONS: expected a dict, got ['name']"]  # type: ignore[arg-type]  # A user may.
