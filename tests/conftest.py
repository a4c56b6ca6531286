"""How `make test` divides the tests between its processes: the order, and what stays together.

A file runs in one process (``--dist loadfile``).  By default, xdist hands out the files with many
tests first; here those with few tests take longest, and one of them would keep a process busy
alone at the end.  So the folders whose tests start processes come first, and quick ones last.

No example of Hypothesis has a time limit: on a busy machine any step can take a second.  Tests that
do not say how many they need draw 40; ``EXAMPLES=1000``, which is `make properties`, draws more.

The tests that share a Spark session stay in one process: a second session would cost its start
and a second warming-up of a JVM.  So do those that share a cluster of three brokers.  Both end
with the last test of their folder, because an idle cluster takes a sixth of a processor.
"""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import flaky_tests

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import Producer

settings.register_profile(
    "no limits of time",
    max_examples=int(os.environ.get("EXAMPLES") or 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("no limits of time")

FIRST = (
    *(
        "tests/cluster/",
        "tests/integration/spark/",
        "tests/integration/worker/",
        "tests/interop/",
        "tests/integration/flights/",
        "tests/faults/",
    ),
    *("tests/sim/", "tests/attacks/", "tests/model/", "tests/bench/", "tests/explore/"),
)
SPARK = "tests/integration/spark/"
CLUSTER = "tests/cluster/test_"
WITHOUT_THE_SHARED_SESSION = {
    f"{SPARK}{name}.py"
    for name in (
        *("kills/test_kills", "test_connect", "test_executor_read", "test_imports", "test_java"),
        *("test_java_home", "test_kept_records", "test_lifecycle", "test_local_cluster"),
        *("test_odd_names", "test_packed_environment", "test_python"),
        *("test_read_through_faults", "test_sink_rows", "test_stream_reader"),
    )
}


def rank(path: str) -> int:
    """The place of a file in the order of `FIRST`."""
    found = [index for index, prefix in enumerate(FIRST) if path.startswith(prefix)]
    return found[0] if found else len(FIRST)


def unit_of_work(nodeid: str) -> str:
    """What runs in one process: a file, or all files that share a Spark session or a cluster."""
    path = nodeid.partition("::")[0]
    if path.startswith(CLUSTER):
        return CLUSTER
    return SPARK if path.startswith(SPARK) and path not in WITHOUT_THE_SHARED_SESSION else path


def pytest_configure(config: pytest.Config) -> None:
    """Report this run to `.ci/run`; the runs of pytest that tests start have no part in it."""
    if path := os.environ.pop(flaky_tests.VARIABLE, None):
        config.pluginmanager.register(flaky_tests.RunReport(Path(path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the fifteen thousand tests, of which none is garbage.

    Each process collects all of them: its collector would look through them again and again,
    and later on in every test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests; within a rank they stay in their random order."""
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Hand out the units of work in the order of the collection."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of_work(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """SIGHUP arrives here and in processes that are started, although `nohup` runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="module", autouse=True)
def _sockets_of_other_libraries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what pyspark and kafka-python leave to the garbage collector, after their tests.

    Both leave sockets open whose peer has gone.  Collected at any later time, they would fail a
    test that has nothing to do with them.
    """
    yield
    path = request.path.as_posix()
    if "/tests/interop/" in path or "/tests/integration/spark/" in path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
