"""The command line against a broker in the same process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sharegroup.cli.main import main
from sharegroup.testing import run_broker


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The output of a listing, cell by cell."""
        return [line.split() for line in self.out.splitlines()]


Run = Callable[..., Printed]


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with run_broker({"num.partitions": "2"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``sharegroup WORDS...`` against the broker."""

    def run_words(words: str, *more: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main([*words.split(), *more, "--bootstrap", bootstrap])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words
