"""How the descriptors of a process are divided."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.broker.load.descriptors import Descriptors, division, open_count, raise_limit


@contextmanager
def soft_limit(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1_024, Descriptors(1_024, 690, 115, 115)),
        (256, Descriptors(256, 114, 19, 19)),
        (8_064, Descriptors(8_064, 2_000, 512, 995)),
        (1_048_576, Descriptors(1_048_576, 2_000, 512, 10_000)),
    ],
)
def test_connections_and_files_share_the_free_descriptors(
    limit: int, expected: Descriptors
) -> None:
    assert division(limit, in_use=40, connections_max=2_000) == expected


@pytest.mark.parametrize("limit", [0, 64, 100, 150])
def test_process_with_hardly_any_descriptors_still_gets_a_few_of_each(limit: int) -> None:
    parts = division(limit, in_use=40, connections_max=2_000)
    assert parts.connections_max >= 1
    assert parts.files_max == parts.idle_files_max == 16


@pytest.mark.parametrize("limit", [256, 1_024, 4_096, 65_536, 1_048_576])
def test_parts_and_reserve_are_within_the_limit(limit: int) -> None:
    parts = division(limit, in_use=40, connections_max=1_000_000)
    assert 40 + 64 + 2 * parts.files_max + parts.connections_max <= limit


def test_soft_limit_is_raised_to_the_hard_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with soft_limit(256):
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_limit_that_cannot_be_raised_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    with soft_limit(256):
        monkeypatch.setattr(resource, "setrlimit", refuse)
        raise_limit()
        monkeypatch.undo()
    assert "event=descriptors_not_raised limit=256" in caplog.text


def test_open_descriptors_are_counted() -> None:
    before = open_count()
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        assert open_count() == before + 1
    finally:
        os.close(fd)
