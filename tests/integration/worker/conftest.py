"""One broker process for all worker tests; every test has a topic and a group of its own.

``SHAREGROUP_INTEROP=kafka`` runs the same tests against a real Apache Kafka: a worker speaks
nothing but Kafka's protocol, so what holds on one has to hold on the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.chosen_broker import SHORT_TIMES, chosen, running

SETTINGS = {**SHORT_TIMES, "group.min.session.timeout.ms": "1000"}
_names = count(1)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the broker listens."""
    with running(chosen(), tmp_path_factory.mktemp("worker"), SETTINGS) as there:
        yield there.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic is not created yet."""
    return _name(request, "topic")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group id that no other test uses."""
    return _name(request, "group")


def _name(request: pytest.FixtureRequest, kind: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{plain[:60].strip('-')}.{kind}{next(_names)}"
