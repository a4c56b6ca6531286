"""Reads the runs of share partitions from the metrics port of `sharegroup serve`.

The broker's page ``/share-partitions`` has the acquisition locks, too, which are only in memory. An
answer has a limited number of runs, so the rest of a share partition is requested from its
``next_offset`` on. Meanwhile the state may change: two answers are from different moments.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

import click

from sharegroup.cli.common.output import printable
from sharegroup.cli.groups.runs.runs import ShownRun, ShownSharePartition

PATH = "/share-partitions"
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of an answer; those of `sharegroup serve` are below 400 KB."""
REQUESTS_MAX = 10_000
"""Maximum number of requests for one share partition, if its state changes all the time."""


def base_url(text: str) -> str:
    """Return the URL of a metrics port without path; raise UsageError for another text.

    The URL of the metrics, which ends with ``/metrics``, is accepted too.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    path = parts.path.rstrip("/").removesuffix("/metrics")
    if parts.scheme not in ("http", "https") or not parts.hostname or path or parts.query:
        raise click.BadParameter(
            f"{text!r}: expected the URL of the broker's metrics port, such as "
            "http://127.0.0.1:9464",
            param_hint="--metrics",
        )
    return f"{parts.scheme}://{parts.netloc}"


async def live_runs(
    url: str,
    group: str,
    topic: str | None,
    partition: int | None,
    *,
    runs_max: int,
    timeout_ms: int,
) -> list[ShownSharePartition]:
    """Return the group's share partitions in the broker's memory, with their first runs."""
    query: dict[str, object] = {"group": group}
    query |= {} if topic is None else {"topic": topic}
    query |= {} if partition is None else {"partition": partition}
    answer = await _ask(url, query, timeout_ms)
    if answer["left_out"]:
        raise click.ClickException(
            f"{url} has {answer['left_out']} share partitions of group {group!r} beyond the first "
            f"{len(answer['share_partitions'])}, which fill an answer; name a topic and a partition"
        )
    return [
        await _complete(url, group, entry, runs_max=runs_max, timeout_ms=timeout_ms)
        for entry in answer["share_partitions"]
    ]


async def _complete(
    url: str, group: str, entry: Mapping[str, Any], *, runs_max: int, timeout_ms: int
) -> ShownSharePartition:
    """Request the runs that the first answer had no room for, up to ``runs_max``."""
    topic, partition = entry["topic"], entry["partition"]
    runs = list(entry["runs"])
    next_offset = entry["next_offset"]
    requests = 0
    while next_offset is not None and len(runs) < runs_max and requests < REQUESTS_MAX:
        requests += 1
        query = {
            "group": group,
            "topic": topic,
            "partition": partition,
            "first_offset": next_offset,
        }
        found = (await _ask(url, query, timeout_ms))["share_partitions"]
        if not found:
            break  # It was unloaded meanwhile: its last member has left.
        runs += found[0]["runs"]
        next_offset = found[0]["next_offset"]
    runs = runs[:runs_max]
    is_whole = next_offset is None and len(runs) < runs_max
    return ShownSharePartition(
        topic=topic,
        partition=partition,
        start_offset=entry["start_offset"],
        end_offset=entry["end_offset"],
        high_watermark=entry["high_watermark"],
        run_count=len(runs) if is_whole else max(len(runs), entry["run_count"]),
        runs=tuple(ShownRun(**run) for run in runs),
    )


async def _ask(url: str, query: Mapping[str, object], timeout_ms: int) -> Any:
    """Send one request; raise ClickException with what to do if it has no answer."""
    target = f"{url}{PATH}?{urlencode(query, quote_via=quote)}"
    try:
        status, body = await asyncio.to_thread(_get, target, timeout_ms / 1000)
    except (OSError, HTTPException) as error:
        raise click.ClickException(
            f"no response from {url}: {error}; check that a broker listens there "
            "(sharegroup serve --metrics-port PORT), or leave out --metrics for the durable state"
        ) from error
    try:
        answer = json.loads(body)
    except ValueError as error:
        text = printable(body[:200].decode("utf-8", "replace").strip())
        raise click.ClickException(
            f"{url}: expected JSON from {PATH}, found status {status} and {text!r}; check that "
            "this is the metrics port of a sharegroup serve of the same version"
        ) from error
    if status != 200:
        raise click.ClickException(f"{url}: {printable(str(answer.get('error')))}")
    return answer


def _get(target: str, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body; the proxies of the environment are not for a broker's port."""
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(target, timeout=timeout_s) as response:
            return response.status, response.read(ANSWER_BYTES_MAX)
    except HTTPError as error:
        with error:
            return error.code, error.read(ANSWER_BYTES_MAX)
