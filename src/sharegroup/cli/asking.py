"""What the verbs that talk to a cluster have in common: where it is, and how to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import ShareGroupDescription
from sharegroup.errors import (
    GroupIdNotFound,
    InvalidConfig,
    KafkaError,
    NetworkException,
    NonEmptyGroup,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

T = TypeVar("T")

WHAT_TO_DO: Mapping[type[KafkaError], str] = {
    GroupIdNotFound: "see which there are with: sharegroup groups list",
    InvalidConfig: "see what there is with: sharegroup configs describe --all",
    NonEmptyGroup: "stop them and try again",
    TopicAlreadyExists: "give --if-not-exists if that is all right",
    UnknownTopicOrPartition: "see which there are with: sharegroup topics list",
}
"""The next step after an error that a person can do something about."""

bootstrap_option = click.option(
    "--bootstrap",
    "--bootstrap-server",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT,...",
    help="Where a broker of the cluster is.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
timeout_option = click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Give up after so long.",
)


def ask(bootstrap: str, timeout_ms: int, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Put a question to the cluster and wait for the answer, within the timeout."""

    async def run() -> T:
        async with AdminClient(
            bootstrap_servers=bootstrap,
            default_api_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
        ) as admin:
            return await question(admin)

    try:
        return asyncio.run(run())
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    except (NetworkException, RequestTimedOut) as error:
        raise click.ClickException(
            f"no answer from {bootstrap}: {error}; see that a broker listens there "
            "(sharegroup serve), or name another with --bootstrap"
        ) from error
    except KafkaError as error:
        raise click.ClickException(_line(error)) from error


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a mapping; anything else is a misuse of ``option``."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found


def refuse_errors(results: Mapping[Any, object]) -> None:
    """Fail with one line for each item that the broker refused, if there is any."""
    errors = [error for error in results.values() if isinstance(error, KafkaError)]
    if errors:
        raise click.ClickException("\n       ".join(_line(error) for error in errors))


async def naming_members(admin: AdminClient, group_id: str, error: KafkaError) -> KafkaError:
    """The error; if it is that the group has members, then with who they are."""
    if not isinstance(error, NonEmptyGroup):
        return error
    group = (await admin.describe_share_groups([group_id]))[group_id]
    if not isinstance(group, ShareGroupDescription):
        return error
    members = ", ".join(f"{one.client_id}@{one.host}" for one in group.members)
    return NonEmptyGroup(f"group {group_id!r} has the members {members}")


def _line(error: KafkaError) -> str:
    hint = WHAT_TO_DO.get(type(error))
    text = str(error).rstrip(".")
    return f"{type(error).__name__}: {text}" + (f"; {hint}" if hint else "")
