"""``sharegroup perf``: measures how fast records are produced and consumed, as Kafka's tools do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    cluster_options,
    json_option,
    line_of,
    telling_errors,
)
from sharegroup.cli.common.data_options import (
    command_property_option,
    consumer_property_option,
    group_of,
    group_option,
    producer_options,
    with_properties,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import counted
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import Stop, lacks_broker, run, telling_waits, until_stopped
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.cli.groups.group_start import from_beginning_option, start_options, tell_start
from sharegroup.cli.measuring.consuming import (
    Consumed,
    ConsumePlan,
    OwnTotal,
    consume,
    consume_in_processes,
)
from sharegroup.cli.measuring.date_format import (
    DATE_FORMAT_DEFAULT,
    DateFormatError,
    check_date_format,
)
from sharegroup.cli.measuring.figures import (
    CONSUMER_HEADER,
    Flow,
    as_json,
    consumed_columns,
    consumed_line,
    metric_lines,
    produced_line,
)
from sharegroup.cli.measuring.producing import (
    Keys,
    Produced,
    ProducePlan,
    Producing,
    ValueOf,
    keys,
    monotonic_values,
    random_values,
    values_from_file,
)
from sharegroup.cli.records.formats.template import FormatError, unescape
from sharegroup.cli.records.kafka_console_options import kafka_consumer_options
from sharegroup.client.produce.producer import Producer
from sharegroup.client.settings.client_config import ProducerConfig, config_from
from sharegroup.client.settings.consumer_config import ShareConsumerConfig

GROUP_DEFAULT = "perf-share-consumer"
THREADS_MAX = 256

interval_option = click.option(
    "--reporting-interval",
    "interval_ms",
    type=click.IntRange(1),
    default=5_000,
    show_default=True,
    metavar="MS",
    help="Interval between two progress lines.",
)
metrics_option = click.option(
    "--print-metrics", is_flag=True, help="Print the client's metrics at the end."
)


@click.group("perf", cls=VerbGroup)
def command() -> None:
    """Measure how fast records are produced and consumed.

    Options, lines and columns are those of Kafka's kafka-producer-perf-test and
    kafka-share-consumer-perf-test; MB is 1,048,576 bytes.
    """


@command.command("produce")
@naming_one("topic")
@click.option("--num-records", "count", type=click.IntRange(1), required=True)
@click.option(
    "--record-size",
    "size",
    type=click.IntRange(0),
    help="Size of a value, which consists of random letters.",
)
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read values from this file.",
)
@click.option(
    "--payload-delimiter",
    default="\\n",
    show_default=True,
    help="Delimiter of the values in the file.",
)
@click.option("--payload-monotonic", is_flag=True, help="Use ascending numbers as values.")
@click.option(
    "--throughput",
    type=float,
    default=-1,
    metavar="N",
    help="Maximum number of records per second; -1: no limit.",
)
@click.option("--warmup-records", "warmup", type=click.IntRange(0), default=0)
@click.option(
    "--key-distribution",
    type=click.Choice(["none", "range", "random"]),
    default="none",
    show_default=True,
)
@click.option(
    "--record-key-range", "key_range", type=click.IntRange(1), help="Keys are numbers below this."
)
@click.option("--random-seed", "seed", type=int, default=0, show_default=True)
@interval_option
@metrics_option
@producer_options
@json_option
@command_property_option
@cluster_options
def produce(*, access: Access, command_properties: tuple[str, ...], **options: Any) -> int:
    """Produce records, and print the throughput and the latencies."""
    access = with_properties(access, command_properties)
    plan = _produce_plan(options)

    async def work(stop: Stop) -> tuple[Produced, dict[str, dict[str, float]]]:
        producer = Producer(
            **{
                "client_id": "perf-producer-client",
                "max_block_ms": access.timeout_ms,
                **access.client_options(ProducerConfig),
                **options["producer_options"],
            }
        )
        try:
            producing = Producing(producer, plan)
            async with (
                telling_waits(access.bootstrap_servers, lambda: lacks_broker(producer.metrics())),
                showing_progress(
                    "producing",
                    lambda: producing.produced.flow.records,
                    total=lambda: plan.count,
                    unit="records",
                ) as bar,
            ):
                say = (lambda _: None) if options["as_json"] else bar.echo
                return await producing.run(stop, say), producer.metrics()
        finally:
            await producer.close(timeout=0)

    with telling_errors(access):
        produced, metrics = run(work)
    if options["as_json"]:
        facts = {**as_json(produced.flow, produced.elapsed_ms), "failed": produced.failed}
        if plan.warmup:
            facts["steady"] = as_json(produced.steady, produced.steady_ms)
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo(produced_line(produced.flow, produced.elapsed_ms))
        if plan.warmup:
            click.echo(produced_line(produced.steady, produced.steady_ms, steady=True))
    if options["print_metrics"]:
        click.echo("\n".join(metric_lines(metrics)), err=options["as_json"])
    if produced.error is not None:
        text = (
            f"{counted(produced.failed, 'record')} failed, the first with {line_of(produced.error)}"
        )
        raise click.ClickException(text)
    return produced.stopped


def _produce_plan(options: dict[str, Any]) -> ProducePlan:
    sources = [
        name
        for name, value in (
            ("--record-size", options["size"] is not None),
            ("--payload-file", options["payload_file"] is not None),
            ("--payload-monotonic", options["payload_monotonic"]),
        )
        if value
    ]
    if len(sources) != 1:
        raise click.UsageError(
            "give exactly one of --record-size, --payload-file, --payload-monotonic"
        )
    if options["key_distribution"] != "none" and options["key_range"] is None:
        raise click.UsageError("--key-distribution needs --record-key-range")
    return ProducePlan(
        topic=options["topic"],
        count=options["count"],
        value_of=_values(options),
        key_of=keys(
            Keys(options["key_distribution"], options["key_range"] or 0), seed=options["seed"]
        ),
        records_per_second=options["throughput"],
        warmup=options["warmup"],
        interval_ms=options["interval_ms"],
    )


def _values(options: dict[str, Any]) -> ValueOf:
    if options["size"] is not None:
        return random_values(options["size"], count=options["count"], seed=options["seed"])
    if options["payload_monotonic"]:
        return monotonic_values()
    try:
        delimiter = unescape(options["payload_delimiter"])
        return values_from_file(options["payload_file"], delimiter=delimiter, seed=options["seed"])
    except (FormatError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _date_format(_: click.Context, __: click.Parameter, pattern: str) -> str:
    try:
        return check_date_format(pattern)
    except DateFormatError as error:
        raise click.BadParameter(str(error)) from error


@command.command("consume")
@naming_one("topic")
@click.option("--num-records", "--messages", "count", type=click.IntRange(1), required=True)
@group_option(GROUP_DEFAULT)
@from_beginning_option
@click.option("--fetch-size", type=click.IntRange(1), default=1024 * 1024, show_default=True)
@click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    default=1,
    show_default=True,
    help="Number of consumers; if more than one, each is a process.",
)
@click.option(
    "--show-detailed-stats", "detailed", is_flag=True, help="Print a line in each interval."
)
@click.option("--show-consumer-stats", is_flag=True, help="Print a line for each consumer.")
@click.option(
    "--date-format",
    default=DATE_FORMAT_DEFAULT,
    show_default=True,
    metavar="PATTERN",
    callback=_date_format,
    help="Format of times: letters yMdHmsSZ, as in Java's SimpleDateFormat.",
)
@click.option(
    "--socket-buffer-size",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Size of the system's buffer for receiving.  [default: the system's]",
)
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@interval_option
@metrics_option
@json_option
@consumer_property_option
@kafka_consumer_options
@cluster_options
def consume_(*, access: Access, command_properties: tuple[str, ...], **options: Any) -> int:
    """Consume records as a share group, and print the throughput.

    The measurement ends if no record arrives within --timeout; the measured time ends with the
    last record.  Two columns follow those of Kafka: the number of redelivered records, and the
    latency from the timestamp of a record to its delivery.
    """
    access = with_properties(access, command_properties)
    plan = _consume_plan(access, options)
    with telling_errors(access):
        # Raises for invalid options now, before a request is sent or a process started.
        config_from(ShareConsumerConfig, plan.client_options)
        stopped = run(lambda stop: _told_start(stop, access, plan, options["from_beginning"]))
    if stopped:
        return stopped
    if not options["hide_header"] and not options["as_json"]:
        click.echo(CONSUMER_HEADER)
    with telling_errors(access):
        start_ms, consumed = _run_consumers(plan, options["threads"])
    flow = Flow()
    for result in consumed:
        flow.add(result.flow)
    end_ms = max(start_ms, *(result.last_ms for result in consumed))
    _print_consumed(flow, start_ms, end_ms, consumed, options)
    errors = [f"{result.client_id}: {result.error}" for result in consumed if result.error]
    if errors:
        raise click.ClickException("\n       ".join(errors))
    stopped = max(result.stopped for result in consumed)
    if flow.records < plan.count and not stopped:
        raise click.ClickException(
            f"{flow.records} of {counted(plan.count, 'record')} arrived, and no more within "
            f"{plan.idle_ms} ms (increase --timeout to wait longer)"
        )
    return stopped


def _consume_plan(access: Access, options: dict[str, Any]) -> ConsumePlan:
    return ConsumePlan(
        topic=options["topic"],
        count=options["count"],
        where=access.bootstrap_servers,
        idle_ms=access.timeout_ms,
        interval_ms=options["interval_ms"],
        detailed=options["detailed"] and not options["as_json"],
        date_format=options["date_format"],
        client_options={
            "client_id": "perf-share-consumer-client",
            "fetch_max_bytes": options["fetch_size"],
            **_socket_buffer(options["socket_buffer_size"]),
            **access.client_options(ShareConsumerConfig),
            "group_id": group_of(access, options["group"], GROUP_DEFAULT),
            **start_options(from_beginning=options["from_beginning"]),
        },
    )


def _socket_buffer(size: int | None) -> dict[str, int]:
    return {} if size is None else {"receive_buffer_bytes": size}


async def _told_start(stop: Stop, access: Access, plan: ConsumePlan, from_beginning: bool) -> int:
    """Tell where the group starts; return the exit code of a signal that came meanwhile, or 0."""
    telling = tell_start(access, (plan.topic,), plan.client_options, from_beginning=from_beginning)
    await until_stopped(telling, stop)
    return stop.code


def _run_consumers(plan: ConsumePlan, count: int) -> tuple[int, list[Consumed]]:
    if count > 1:
        return consume_in_processes(plan, count)
    start_ms = time.time_ns() // 1_000_000
    return start_ms, [run(lambda stop: consume(plan, OwnTotal(), stop))]


def _print_consumed(
    flow: Flow, start_ms: int, end_ms: int, consumed: list[Consumed], options: dict[str, Any]
) -> None:
    elapsed_ms = end_ms - start_ms
    if options["as_json"]:
        consumers = [
            {
                "client_id": result.client_id,
                "redelivered": result.flow.redelivered,
                **as_json(result.flow, elapsed_ms),
            }
            for result in consumed
        ]
        facts = {"redelivered": flow.redelivered, **as_json(flow, elapsed_ms)}
        click.echo(json.dumps({**facts, "consumers": consumers}, indent=2))
    else:
        for index, result in enumerate(consumed, 1):
            if options["show_consumer_stats"]:
                columns = consumed_columns(result.flow, start_ms, end_ms, options["date_format"])
                click.echo(
                    f"Share consumer {index} having client id {result.client_id} consumption "
                    f"metrics- {columns}"
                )
        click.echo(consumed_line(flow, start_ms, end_ms, options["date_format"]))
    if options["print_metrics"]:
        for result in consumed:
            click.echo("\n".join(metric_lines(result.metrics)), err=options["as_json"])
