"""Names as arguments or options: ``describe billing``, ``describe --group billing``.

The shell completes the names of groups and topics from the cluster of the command line, if it
answers in time.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import click

from sharegroup.cli.common.cluster_access import (
    COMPLETION_MS,
    Access,
    ask_briefly,
    list_group_names,
)
from sharegroup.cli.common.options import Verb
from sharegroup.errors import KafkaError

if TYPE_CHECKING:
    # Imported for its type alone, as in `cluster_access`.
    from sharegroup.client.admin.admin_client import AdminClient

PLAIN_NAME = re.compile(r"[\w.:@%+=,/-]+")
"""Names that a shell and a terminal take as they are."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Kind = Literal["group", "topic"]


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of every type whose ids begin with ``incomplete``."""
    return _matching(ctx, list_group_names, incomplete)


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics whose names begin with ``incomplete``."""
    return _matching(ctx, lambda admin: admin.list_topics(), incomplete)


COMPLETE: dict[Kind, Complete] = {"group": complete_groups, "topic": complete_topics}


def naming_many(kind: Kind, *, required: bool = True) -> Callable[[Verb], Verb]:
    """Let a verb take any number of names; it is called with ``groups`` or ``topics``."""

    def with_option(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def with_names(*, arguments: tuple[str, ...], options: tuple[str, ...], **rest: Any) -> Any:
            names = tuple(dict.fromkeys((*arguments, *options)))
            if required and not names:
                raise click.UsageError(f"give at least one {kind}")
            return verb(**{f"{kind}s": names}, **rest)

        metavar = f"{kind.upper()}..." if required else f"[{kind.upper()}]..."
        return _named(kind, with_names, metavar=metavar)

    return with_option


def naming_one(kind: Kind, *, required: bool = True) -> Callable[[Verb], Verb]:
    """Let a verb take one name; it is called with ``group`` or ``topic``.

    Without ``required`` it may be None: no name was given.
    """

    def with_option(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def with_name(*, arguments: tuple[str, ...], options: tuple[str, ...], **rest: Any) -> Any:
            names = tuple(dict.fromkeys((*arguments, *options)))
            if len(names) > 1 or (required and not names):
                raise click.UsageError(
                    f"name one {kind}" + (f", not {len(names)}" if names else "")
                )
            return verb(**{kind: names[0] if names else None}, **rest)

        metavar = kind.upper() if required else f"[{kind.upper()}]"
        return _named(kind, with_name, metavar=metavar)

    return with_option


def _named(kind: Kind, verb: Verb, *, metavar: str) -> Verb:
    option = click.option(
        f"--{kind}",
        "options",
        metavar=kind.upper(),
        multiple=True,
        shell_complete=COMPLETE[kind],
        help=f"The same as {kind.upper()} without --{kind}.",
    )
    argument = click.argument(
        "arguments",
        metavar=metavar,
        nargs=-1,
        shell_complete=COMPLETE[kind],
    )
    return argument(option(verb))


def _matching(
    ctx: click.Context, names: Callable[[AdminClient], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    """Return the names that begin with ``incomplete``, sorted.

    Returns no names if the cluster does not answer, because a shell cannot show an error.
    """

    try:
        access = Access.of(
            ctx.params.get("bootstrap_servers"),
            ctx.params.get("command_config"),
            COMPLETION_MS,
            ctx.params.get("profile"),
        )
        known = asyncio.run(ask_briefly(access, names, COMPLETION_MS))
        return matching_names(known, incomplete)
    except (KafkaError, OSError, click.ClickException):
        return []


def matching_names(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names to offer for the beginning of one, sorted.

    A group may have any name, such as ``$(command)``, and shells put a completion into the command
    line without quoting it; so names with characters that mean something there are left out.
    """
    return sorted(
        name for name in names if name.startswith(incomplete) and PLAIN_NAME.fullmatch(name)
    )
