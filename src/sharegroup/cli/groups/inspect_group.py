"""``sharegroup groups inspect``: the state of each record of a group, as runs of offsets.

Three sources:

    the coordinator     our broker lists the runs of its memory, with members and locks
    the durable state   ``__share_group_state``, on any other broker; locks are not durable
    the metrics port    that of `sharegroup serve`, for users without DESCRIBE on the group
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    cluster_options,
    listing_options,
    show,
)
from sharegroup.cli.common.name_arguments import complete_groups
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import Listing
from sharegroup.cli.common.tables import leaves_out, wrapped
from sharegroup.cli.groups.group_runs import (
    DURABLE_ONLY,
    Place,
    no_share_partitions,
    share_partitions_at,
    stored_runs,
)
from sharegroup.cli.groups.run_lines import (
    RUNS_MAX,
    SPARE,
    WHAT_A_RUN_IS,
    drawing,
    run_table,
)
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.errors import UnsupportedVersion
from sharegroup.http_documents import CONNECTIONS
from sharegroup.share_runs.broker_runs import broker_runs
from sharegroup.share_runs.live_runs import LiveRunsError, live_runs
from sharegroup.share_runs.share_runs import ShownSharePartition

MAX_RUNS_MAX = 1_000_000
LINES_BESIDE = 10
"""Lines of a terminal without a run: headings, remarks, blank lines and the prompt."""
LINES_MIN = 5
"""The least number of runs in the table on a terminal, however low it is."""


def _target(*, names: tuple[str, ...], group: str | None, topic: str | None) -> tuple[str, Place]:
    """Return the group and the place from the arguments and options."""
    arguments = list(names)
    group_id = group if group is not None else arguments.pop(0) if arguments else None
    text = topic if topic is not None else arguments.pop(0) if arguments else None
    if not group_id or arguments:
        raise click.UsageError("expected GROUP and optionally TOPIC or TOPIC:PARTITION")
    if text is None:
        return group_id, (None, None)
    name, separator, number = text.partition(":")
    if not name or (separator and not (number.isascii() and number.isdecimal())):
        raise click.UsageError(f"expected TOPIC or TOPIC:PARTITION, found {text!r}")
    return group_id, (name, int(number) if separator else None)


target_options = gathered(
    "target",
    _target,
    click.argument(
        "names", nargs=-1, metavar="GROUP [TOPIC[:PARTITION]]", shell_complete=complete_groups
    ),
    click.option("--group", metavar="GROUP", help="The group, in place of the first argument."),
    click.option("--topic", metavar="TOPIC[:PARTITION]", help="The topic, in place of the second."),
)
"""Adds a group and a place in it to a verb, which is called with ``target``."""


@click.command("inspect")
@target_options
@click.option(
    "--durable",
    "is_durable",
    is_flag=True,
    help="Read __share_group_state: the state as after a restart of the broker.",
)
@click.option(
    "--metrics",
    "metrics_url",
    metavar="URL",
    help="Metrics port of sharegroup serve: show the state in its memory.",
)
@click.option(
    "--max-runs",
    "runs_max",
    type=click.IntRange(1, MAX_RUNS_MAX),
    default=RUNS_MAX,
    show_default=True,
    metavar="N",
    help="Maximum number of runs of each share partition.",
)
@cluster_options
@listing_options
@leaves_out(SPARE)
def command(
    *,
    target: tuple[str, Place],
    is_durable: bool,
    metrics_url: str | None,
    runs_max: int,
    access: Access,
    form: Form,
) -> None:
    """Show the runs of a group: offsets in one state, with their delivery count.

    sharegroup serve lists them with the member and the remaining time of each lock; this needs
    DESCRIBE on the group and its topics. With --metrics they come from its metrics port.

    On Apache Kafka, and with --durable, they are read from the topic __share_group_state, which
    needs READ on it. Locks are not durable: a record that was only acquired looks as if nobody had
    it, as after a restart of the broker, and a group that settled nothing has no runs.

    \b
        sharegroup groups inspect billing
        sharegroup groups inspect billing orders:3 --watch 1
        sharegroup groups inspect billing --durable
    """
    group_id, place = target
    if is_durable and metrics_url is not None:
        raise click.UsageError("expected one of --durable and --metrics")
    if metrics_url is None:
        question = partial(_of_cluster, access, group_id, place, is_durable, runs_max)
    else:
        question = partial(_live, base_url(metrics_url), access, group_id, place, runs_max)
    show(access, form, question)


def base_url(text: str) -> str:
    """Return the URL of a metrics port without path; raise UsageError for another text.

    The URL of the metrics, which ends with ``/metrics``, is accepted too.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        path = parts.path.rstrip("/").removesuffix("/metrics")
        is_port = parts.scheme in CONNECTIONS and bool(parts.hostname) and parts.port != 0
        if is_port and not path and not parts.query:
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass  # An address or a port that cannot be one.
    raise click.BadParameter(
        f"{text!r}: expected the URL of the broker's metrics port, such as http://127.0.0.1:9464",
        param_hint="--metrics",
    )


async def _live(
    url: str, access: Access, group: str, place: Place, runs_max: int, _: AdminClient
) -> Listing:
    try:
        shown = await live_runs(url, group, *place, runs_max=runs_max, timeout_ms=access.timeout_ms)
    except LiveRunsError as error:
        raise click.ClickException(str(error)) from error
    empty = (
        f"Group {group!r} has no such share partition in the memory of {url}, because no member "
        "fetches from it; without --metrics its stored state is shown."
    )
    return _listing(group, shown, empty)


async def _of_cluster(
    access: Access, group: str, place: Place, is_durable: bool, runs_max: int, admin: AdminClient
) -> Listing:
    """Return the runs from the coordinator, or from the state topic if it lists none."""
    wanted = await share_partitions_at(admin, group, place)
    empty = no_share_partitions(group)
    if not is_durable:
        try:
            listed = await broker_runs(admin, group, wanted, runs_max=runs_max)
            return _listing(group, listed, empty)
        except UnsupportedVersion:
            pass  # Apache Kafka lists no runs.
    stored = await stored_runs(access, admin, group, wanted, runs_max=runs_max) if wanted else []
    return _listing(group, stored, empty, remark=DURABLE_ONLY)


def _listing(
    group: str, shown: Sequence[ShownSharePartition], empty: str, *, remark: str | None = None
) -> Listing:
    def drawn(coloured: bool, width: int | None) -> str:
        if width is None:
            return run_table(shown)
        picture = drawing(shown, width=width, coloured=coloured)
        said = (WHAT_A_RUN_IS,) if remark is None else (remark, WHAT_A_RUN_IS)
        what = "\n".join(line for text in said for line in wrapped(text, width))
        lines = shutil.get_terminal_size().lines
        room = lines - picture.count("\n") - what.count("\n") - LINES_BESIDE
        runs = run_table(shown, lines_max=max(room, LINES_MIN), coloured=coloured, width=width)
        return f"{picture}\n\n{what}\n{runs}"

    rows = [share_partition.row(group) for share_partition in shown]
    return Listing(rows, (), empty, drawn=drawn)
