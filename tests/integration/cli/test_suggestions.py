"""Mistyped names of verbs, topics and groups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run
from tests.support.limits import HANGING_SECONDS


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("topic list", "No such command 'topic'; did you mean 'topics' or 'top'?"),
        ("topics lst", "No such command 'lst'; did you mean 'list'?"),
        ("dlq lst", "No such command 'lst'; did you mean 'list'?"),
        ("worker statu", "No such command 'statu'; did you mean 'status'"),
        ("celery worker", "sharegroup worker MODULE:APP"),
        ("-A proj worker", "The application is an argument: sharegroup worker MODULE:APP."),
        ("worker -A proj", "The application is an argument: sharegroup worker MODULE:APP."),
        ("worker orders:app -B", "No such option '-B'. Each worker makes the runs of schedules"),
        ("worker orders:app --pool prefork", "'--pool'. A handler's declaration has processes=8"),
        ("worker orders:app -Q mail", "-g GROUP,GROUP runs only the handlers of these groups."),
        ("worker orders:app -l info", "No such option '-l'. It is --log-level INFO."),
    ],
)
def test_verb_is_suggested(words: str, text: str, run: Run) -> None:
    printed = run(words)
    assert (printed.code, printed.out) == (2, "")
    assert text in printed.err


@pytest.mark.slow
def test_module_with_a_name_like_a_verb_is_an_application(tmp_path: Path) -> None:
    (tmp_path / "statu.py").write_text("")
    # In a process of its own: it imports the module and sets the logging up.
    ended = subprocess.run(
        [sys.executable, "-m", "sharegroup", "worker", "statu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
        check=False,
    )
    assert "there is no App in it" in ended.stderr


def test_topic_is_suggested_by_every_verb_that_misses_one(consumed: str, run: Run) -> None:
    typo = f"{consumed[:-1]}z"
    for words in (
        f"topics describe {typo}",
        f"topics delete {typo}",
        f"tail {typo}",
        f"configs describe --topic {typo}",
        f"dlq list {typo}",
    ):
        printed = run(words)
        assert printed.code == 1, words
        assert f"did you mean '{consumed}'" in printed.err, (words, printed.err)


def test_group_is_suggested(consumed: str, run: Run) -> None:
    printed = run(f"groups describe {consumed[:-1]}z")
    assert printed.code == 1
    assert f"did you mean '{consumed}'" in printed.err


def test_name_that_is_like_none_has_the_hint_with_the_list(run: Run) -> None:
    assert "list the topics with: sharegroup topics list" in run("topics describe qqqqqq").err
    assert "list the groups with: sharegroup groups list" in run("groups describe qqqqqq").err
