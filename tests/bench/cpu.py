"""What a record costs a broker in processor time: ``python -m tests.bench.cpu [--only LOAD]``.

A rate says what this machine does; the processor time of a record says what one with more cores
does.  The same client loads our broker, with each durability, and a real Apache Kafka, in turn.

Before the pairs of a load each broker is loaded, window after window, until the last ``ALIKE``
differ by less than ``STEADY``: a virtual machine that still compiles would make the figure.  Two
windows are not enough: Apache Kafka's first two of produce cost the same, and its tenth a third.
Its process only sleeps between the pairs, so it stays warm; ours starts anew for each, and its
first window there is not counted.  A cost is the user and system time of the broker's process, less
what it takes while nobody is connected, over the window's records.  Writeback by threads of the
kernel is in nobody's account.

Batches and bytes of an answer are those that the client's statistics have (for a produce request:
of a request), so that a broker which answers with less is seen to do so.

``--quotable`` writes the part "Processor time of a record" of ``docs/benchmarks.md``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from tests.bench.client_process import in_process
from tests.bench.document import ROOT, write_part
from tests.bench.failure import BenchError
from tests.bench.machine import commit, today
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Broker, Peer
from tests.bench.peers.ratios import Ratio, ratio_of
from tests.bench.peers.run import Stage
from tests.bench.peers.workloads import latency, plain_consume, produce, share_consume
from tests.bench.peers.workloads.log import Log, new_group
from tests.support.confluent_calls import create_topic, delete_topic, produce as produce_values
from tests.support.processes import cpu_seconds

STEADY = 0.1
ALIKE = 4
WINDOWS_MAX = 16
IDLE_SECONDS = 3.0
ALONE_RATE = 1_000
ALONE_SHARE = 100
"""Records that arrive alone are so many times fewer in a window: ten seconds of a million."""
STATISTICS_MS = 100
PEERS = (KAFKA, FSYNC, OS)
_topics = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a window asks of a broker."""

    title: str
    window: Callable[[Broker, int], dict[str, Any]]
    """So many records, once; the result of a `Span`, with ``answers`` and ``bytes``."""
    log: Callable[[int], Log] | None = None
    batch_records: int | None = None
    """Records of a batch, where batches are equal."""
    reach: tuple[float, float] | None = None
    """The least ratios that are wanted, for ``fsync`` and ``os``; above 1 is better for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One measured window."""

    us: float
    """Processor time of a record, in microseconds."""
    records: float
    """Of an answer, or of a produce request; 0: not known."""
    bytes: float


class Statistics:
    """What librdkafka counted: requests of one kind, and bytes in the direction that matters."""

    def __init__(self, request: str, direction: str) -> None:
        self._request, self._direction = request, direction
        self._last: Mapping[str, Any] = {}
        self.settings: dict[str, Any] = {
            "statistics_interval_ms": STATISTICS_MS,
            "stats_cb": self._keep,
        }

    def _keep(self, text: str) -> None:
        self._last = json.loads(text)["brokers"]

    def counted(self) -> dict[str, float]:
        brokers = self._last.values()
        return {
            "answers": sum(broker["req"].get(self._request, 0) for broker in brokers),
            "bytes": sum(broker[self._direction] for broker in brokers),
        }


# In the client's process.


def share(**arguments: Any) -> dict[str, Any]:
    seen = Statistics("ShareFetch", "rxbytes")
    return share_consume.client(**arguments, **seen.settings) | seen.counted()


def grouped(**arguments: Any) -> dict[str, Any]:
    seen = Statistics("Fetch", "rxbytes")
    return plain_consume.confluent(**arguments, **seen.settings) | seen.counted()


def produced(**arguments: Any) -> dict[str, Any]:
    seen = Statistics("Produce", "txbytes")
    return produce.client(**arguments, **seen.settings) | seen.counted()


# In the parent.


def _share(log: Callable[[int], Log], *, explicit: bool = False) -> Callable[..., dict[str, Any]]:
    def window(broker: Broker, records: int) -> dict[str, Any]:
        group = new_group(broker.bootstrap_servers)
        return _of_log(share, broker, log(records), group=group, explicit=explicit)

    return window


def _grouped(broker: Broker, records: int) -> dict[str, Any]:
    return _of_log(grouped, broker, _log_500(records), group=f"cpu-{next(_topics)}")


def _of_log(client: Callable[..., Any], broker: Broker, log: Log, **more: object) -> dict[str, Any]:
    return in_process(
        client,
        bootstrap=broker.bootstrap_servers,
        broker_pid=broker.pid,
        topic=log.topic,
        records=log.records,
        **more,
    )


def _produce(record_bytes: int) -> Callable[..., dict[str, Any]]:
    def window(broker: Broker, records: int) -> dict[str, Any]:
        topic = produce.new_topic(broker)
        result = in_process(
            produced,
            bootstrap=broker.bootstrap_servers,
            broker_pid=broker.pid,
            topic=topic,
            records=records,
            record_bytes=record_bytes,
        )
        produce.check_and_delete(broker.bootstrap_servers, topic, records)
        return result

    return window


def _alone(broker: Broker, records: int) -> dict[str, Any]:
    """Each by itself: a producer with linger 0, one share consumer that takes what comes."""
    topic, some = f"cpu-alone-{next(_topics)}", records // ALONE_SHARE
    create_topic(broker.bootstrap_servers, topic)
    produce_values(broker.bootstrap_servers, topic, [b"0"])
    (result,) = in_process(
        latency.client,
        bootstrap=broker.bootstrap_servers,
        broker_pid=broker.pid,
        group=new_group(broker.bootstrap_servers),
        topics=[topic],
        steps=[(topic, 1, ALONE_RATE, some)],
    )["steps"]
    delete_topic(broker.bootstrap_servers, topic)
    return {**result, "counted": some, "answers": 0, "bytes": 0}


def _log_500(records: int) -> Log:
    return Log(topic="cpu-500", records=records)


def _log_5000(records: int) -> Log:
    return Log(topic="cpu-5000", records=records, batch_records=5_000)


def _log_1k(records: int) -> Log:
    return Log(topic="cpu-1k", records=records, record_bytes=1_024)


LOADS: Mapping[str, Load] = {
    "produce-100": Load(
        title="produce, 100 B, linger 5 ms", window=_produce(100), reach=(1 / 0.4, 1 / 0.25)
    ),
    "produce-1k": Load(
        title="produce, 1 KiB, linger 5 ms", window=_produce(1_024), reach=(1 / 0.4, 1 / 0.4)
    ),
    "share": Load(
        title="share consume, implicit, 100 B, batches of 500",
        window=_share(_log_500),
        log=_log_500,
        batch_records=500,
        reach=(6, 9),
    ),
    "share-explicit": Load(
        title="share consume, explicit, 100 B, batches of 500",
        window=_share(_log_500, explicit=True),
        log=_log_500,
        batch_records=500,
        reach=(6, 9),
    ),
    "share-5000": Load(
        title="share consume, implicit, 100 B, batches of 5,000",
        window=_share(_log_5000),
        log=_log_5000,
        batch_records=5_000,
    ),
    "share-1k": Load(
        title="share consume, implicit, 1 KiB, batches of 500",
        window=_share(_log_1k),
        log=_log_1k,
        batch_records=500,
    ),
    "group": Load(
        title="consumer group, 100 B, batches of 500",
        window=_grouped,
        log=_log_500,
        batch_records=500,
        reach=(1 / 0.45, 1 / 0.45),
    ),
    "alone": Load(title=f"share group, records alone, {ALONE_RATE:,}/s", window=_alone),
}


def warm_up(load: Load, peer: Peer, records: int) -> bool:
    """Load a broker until it costs the same from window to window; return whether it did."""
    if load.log is not None:
        load.log(records).on(peer)
    costs: list[float] = []
    with peer.awake() as broker:
        while not is_steady(costs) and len(costs) < WINDOWS_MAX:
            costs.append(microseconds(load.window(broker, records)))
    said = " ".join(f"{cost:.3g}" for cost in costs)
    click.echo(f"{load.title}: {peer.name} warms up: {said}", err=True)
    return is_steady(costs)


def cost_of(load: Load, peer: Peer, records: int) -> Cost:
    """The cost of a record of a broker that is warm."""
    with peer.awake() as broker:
        if peer.ours:
            load.window(broker, records)
        result = load.window(broker, records)
        idle = idle_share(broker.pid)  # Not before: a broker that just started is not idle.
    answers = result["answers"]
    return Cost(
        us=microseconds(result, idle),
        records=records / answers if answers else 0,
        bytes=result["bytes"] / answers if answers else 0,
    )


def idle_share(pid: int) -> float:
    """The part of one core that a broker takes while nobody is connected."""
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pid) - before) / IDLE_SECONDS


def microseconds(result: Mapping[str, float], idle: float = 0) -> float:
    """Of a record of a window, without what the broker takes for itself."""
    spent = result["broker_cpu_s"] - idle * result["seconds"]
    if spent <= 0:
        raise BenchError(f"expected a load that costs more than an idle broker, got {result}")
    return spent / result["counted"] * 1e6


def is_steady(costs: Sequence[float]) -> bool:
    """Whether the last ``ALIKE`` are nearly equal."""
    last = costs[-ALIKE:]
    return len(last) == ALIKE and max(last) - min(last) < STEADY * min(last)


@contextmanager
def _stage() -> Iterator[Stage]:
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="cpu-", dir=folder) as data, Stage(Path(data)) as stage:
        yield stage


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(LOADS)))
@click.option("--pairs", type=click.IntRange(1), default=6, show_default=True)
@click.option("--records", type=click.IntRange(10_000), default=1_000_000, show_default=True)
@click.option("--without-kafka", is_flag=True, help="Our two durabilities only.")
@click.option("--quotable", is_flag=True, help="Write the table into docs/benchmarks.md.")
def main(
    *, only: tuple[str, ...], pairs: int, records: int, without_kafka: bool, quotable: bool
) -> None:
    """Say what a record costs each broker, and the ratio."""
    rows = [HEAD]
    with _stage() as stage:
        peers = stage.peers(PEERS[1:] if without_kafka else PEERS)
        for name in only or LOADS:
            costs: dict[str, list[Cost]] = {peer.name: [] for peer in peers}
            unsteady = {peer.name for peer in peers if not warm_up(LOADS[name], peer, records)}
            for number in range(1, pairs + 1):
                for peer in peers:
                    cost = cost_of(LOADS[name], peer, records)
                    costs[peer.name].append(cost)
                    click.echo(f"{name} {number}/{pairs} {peer.name:12} {cost}", err=True)
            rows.append(row(LOADS[name], costs, unsteady))
            click.echo(rows[-1])
    if quotable:
        said = f"{today()} at {commit(ROOT)}, windows of {records:,} records, {pairs} pairs"
        write_part("cpu", "\n".join([*rows, "", f"Measured {said}."]))


HEAD = """\
## Processor time of a record

`make bench-cpu`: user and system time of the broker's process for a record, in microseconds, after
warming up; the median of the pairs. A ratio above 1 is better for sharegroup.

| load | Kafka | `fsync` | `os` | ratio, `fsync` | ratio, `os` | Kafka's answer | ours, `os` |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""
NONE = "-"


def row(load: Load, costs: Mapping[str, list[Cost]], unsteady: Collection[str] = ()) -> str:
    """A line of the table; ``~`` marks a broker that did not become steady while it warmed up."""
    cells = [load.title]
    for name in PEERS:
        some = costs.get(name, [])
        mark = "~" if name in unsteady else ""
        cells.append(f"{mark}{median(cost.us for cost in some):.3g}" if some else NONE)
    for index, name in enumerate((FSYNC, OS)):
        cells.append(_ratio(load, costs, name, index) if costs.get(KAFKA) else NONE)
    cells += [_answer(load, costs.get(name, [])) for name in (KAFKA, OS)]
    return f"| {' | '.join(cells)} |"


def _ratio(load: Load, costs: Mapping[str, list[Cost]], name: str, index: int) -> str:
    ours, theirs = ([cost.us for cost in costs[peer]] for peer in (name, KAFKA))
    found: Ratio = ratio_of(ours, theirs, higher_is_better=False)
    missed = load.reach is not None and found.ratio < load.reach[index]
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}){' ✗' if missed else ''}"


def _answer(load: Load, some: list[Cost]) -> str:
    if not some or not some[0].records:
        return NONE
    records, size = median(cost.records for cost in some), median(cost.bytes for cost in some)
    what = f"{records:,.0f} records"
    if load.batch_records is not None:
        what = f"{records / load.batch_records:.3g} batches"
    return f"{what}, {size / 1024:,.0f} KiB"


if __name__ == "__main__":
    from tests.bench import cpu as this  # Children find its functions under this name.

    this.main()
