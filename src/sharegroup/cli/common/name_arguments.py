"""Names and verbs as arguments or options: ``describe billing``, ``describe --group billing``.

The shell completes the names of groups and topics from the cluster of the command line, if it
answers in time.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

import click

from sharegroup.cli.common.cluster_access import Access
from sharegroup.cli.common.options import Verb
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.errors import KafkaError

PLAIN_NAME = re.compile(r"[\w.:@%+=,/-]+")
"""Names that a shell and a terminal take as they are."""
COMPLETION_MS = 1_000
"""Maximum time that a completion in the shell waits for the cluster."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Kind = Literal["group", "topic"]


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the share groups whose ids begin with ``incomplete``."""

    async def names(admin: AdminClient) -> list[str]:
        return [group.group_id for group in await admin.list_share_groups()]

    return _matching(ctx, names, incomplete)


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


def naming_one(kind: Kind) -> Callable[[Verb], Verb]:
    """Let a verb take exactly one name; it is called with ``group`` or ``topic``."""

    def with_option(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def with_name(*, arguments: tuple[str, ...], options: tuple[str, ...], **rest: Any) -> Any:
            names = tuple(dict.fromkeys((*arguments, *options)))
            if len(names) != 1:
                raise click.UsageError(
                    f"name one {kind}" + (f", not {len(names)}" if names else "")
                )
            return verb(**{kind: names[0]}, **rest)

        return _named(kind, with_name, metavar=kind.upper())

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

    async def ask() -> list[str]:
        access = Access.of(
            ctx.params.get("bootstrap_servers"),
            ctx.params.get("command_config"),
            COMPLETION_MS,
            ctx.params.get("profile"),
        )
        async with asyncio.timeout(COMPLETION_MS / 1000):
            async with AdminClient(**access.client_options(warn=lambda _: None)) as admin:
                return matching_names(await names(admin), incomplete)

    try:
        return asyncio.run(ask())
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


# Groups of verbs also accept the syntax of Kafka's tools.
#
# ``sharegroup groups describe --group billing`` is our syntax. Users of ``kafka-share-groups.sh
# --describe --group billing`` may write ``sharegroup groups --describe --group billing``. If the
# first word is not a verb, an option with the name of a verb selects that verb, at any position. If
# the first word is a verb, all options are those of the verb.


class VerbsAsOptions(click.Group):
    """A group of commands that takes ``--describe`` for ``describe``, if no verb comes first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the verb to the front, given as a word or as an option."""
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        verb_options = [
            option for option in args if option.startswith("--") and option[2:] in self.commands
        ]
        if len(verb_options) > 1:
            raise click.UsageError(f"give only one of {' and '.join(verb_options)}", ctx)
        for option in verb_options:
            other_args = list(args)
            other_args.remove(option)
            args = [option[2:], *other_args]
        return super().parse_args(ctx, args)
