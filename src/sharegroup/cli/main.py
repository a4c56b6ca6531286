"""The command line: a table of verbs, each in a module of its own that is imported on use.

Late imports keep ``sharegroup --help`` fast, because no verb loads the imports of another.
Exit codes: 0 success, 1 failure (one line on standard error says why), 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from sharegroup import __version__
from sharegroup.cli.common.light_imports import import_lightly
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.errors import KafkaError, MissingExtra
from sharegroup.escaping import escaped

VERBS = {
    "serve": "Run a broker in the foreground.",
    "topics": "List, describe, create, alter and delete topics.",
    "groups": "List, describe, reset and delete groups: share groups and consumer groups.",
    "cluster": "Show the brokers, the controller, the features and the versions of a cluster.",
    "ping": "Test whether a broker answers.",
    "configs": "Show and change settings of topics, groups and brokers.",
    "users": "List, add and remove the users of SCRAM.",
    "acls": "List, add and remove access control lists.",
    "produce": "Send records from files and pipes.",
    "tail": "Print records of a topic without taking them.",
    "consume": "Consume records as a member of a share group.",
    "worker": "Run the handlers of an application, and control running workers.",
    "schedules": "List, pause, resume and run the schedules of an application.",
    "quotas": "List, set and remove limits of users, client ids and addresses.",
    "dlq": "List, show, export, redrive and purge dead letters.",
    "console": "Serve a page that shows share groups, their records and dead letters.",
    "top": "Show live what needs attention, and the share groups.",
    "jobs": "List, show, abort and resume jobs: repairs of many records.",
    "retries": "List, run and cancel records that wait for a retry.",
    "perf": "Measure how fast records are produced and consumed.",
    "logs": "Print segments and internal topics of a data directory.",
    "certs": "Make certificates for trying TLS out.",
    "data": "Check and repair a data directory.",
    "completion": "Print the script for shell completion of verbs, options and names.",
}
ROOMS = {
    "access": ("acls", "certs", "quotas", "users"),
    "broker": ("data", "logs", "serve"),
    "cluster": ("cluster", "ping"),
    "common": ("completion",),
    "console": ("console", "top"),
    "dead_letters": ("dlq", "jobs", "retries"),
    "groups": ("groups",),
    "measuring": ("perf",),
    "records": ("consume", "produce", "tail"),
    "topics": ("configs", "topics"),
    "worker": ("schedules", "worker"),
}
MODULES = {verb: f"sharegroup.cli.{room}.{verb}" for room, verbs in ROOMS.items() for verb in verbs}
"""The module of each verb; it has the verb's ``command``."""
LIGHT = (
    *("acls", "cluster", "configs", "dlq", "groups", "jobs"),
    *("ping", "quotas", "topics", "users"),
)
"""Verbs whose process runs only our code, and whose start is a part of how fast they are.

`serve` has a start of its own.
"""


OTHER_WORDS = {
    **dict.fromkeys(
        ("amqp", "beat", "celery", "dramatiq", "faust", "flower", "karafka", "server"),
        "; sharegroup worker MODULE:APP runs the handlers of an application, worker status and dlq "
        "list show its state, and docs/migrating.md has the other words of your tool",
    ),
    "brokers": "; did you mean 'cluster brokers'?",
    "send": "; did you mean 'produce'?",
}
"""What to say about words of other tools."""
OTHER_OPTIONS = {
    **dict.fromkeys(
        ("-A", "--app"), "The application is an argument: sharegroup worker MODULE:APP."
    ),
    **dict.fromkeys(
        ("-B", "--beat"),
        "Each worker makes the runs of schedules, and each run once: @app.every and @app.cron.",
    ),
    **dict.fromkeys(
        ("-P", "--pool"), "A handler's declaration has processes=8 or, for threads, concurrency=8."
    ),
    **dict.fromkeys(("-Q", "--queues"), "-g GROUP,GROUP runs only the handlers of these groups."),
    **dict.fromkeys(("-l", "--loglevel"), "It is --log-level INFO."),
}
"""What to say about options of other tools."""


class Verbs(VerbGroup):
    """A group whose commands are in the modules of ``MODULES``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # None, and not an error: click then says which words exist, with exit code 2.
        if cmd_name not in VERBS:
            return None
        if cmd_name in LIGHT and ctx.obj:
            # Only in the program's own process, as in `serve` (ADR 0024).
            import_lightly()
        command = import_module(MODULES[cmd_name]).command
        assert isinstance(command, click.Command)
        _complete(command)
        return command

    def suggestion(self, ctx: click.Context, word: str) -> str:
        return OTHER_WORDS.get(word) or super().suggestion(ctx, word)

    def purposes(self, ctx: click.Context) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        # From the table: this imports no verb.
        yield from VERBS.items()


def _advised(misuse: click.ClickException) -> click.ClickException:
    """Return the error with what to do, if it is about an option of another tool."""
    if isinstance(misuse, click.NoSuchOption) and misuse.option_name in OTHER_OPTIONS:
        # Without click's own guess: it compares letters, so for --pool it names --profile.
        text = f"{misuse.message} {OTHER_OPTIONS[misuse.option_name]}"
        return click.UsageError(text, misuse.ctx)
    return misuse


VERSION = click.version_option(__version__, prog_name="sharegroup", hidden=True)


def _complete(command: click.Command) -> None:
    """Add to a verb and its verbs what all have: ``--version``, as in Kafka, and `_text_check`."""
    if not any("--version" in parameter.opts for parameter in command.params):
        VERSION(command)
    for parameter in command.params:
        if not isinstance(parameter.type, click.Path | click.File):
            parameter.callback = _text_check(parameter.callback)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _complete(inner)


Callback = Callable[[click.Context, click.Parameter, Any], Any]


def _text_check(callback: Callback | None) -> Callback:
    """Return a callback that refuses texts that are not UTF-8, and then calls ``callback``.

    Only the paths of files may be other bytes; names and values are sent as UTF-8.
    """

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        for text in _texts(value):
            try:
                text.encode()
            except UnicodeEncodeError:
                found = f"{escaped(text)} is not UTF-8"
                raise click.BadParameter(found, context, parameter) from None
        return value if callback is None else callback(context, parameter, value)

    return check


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a parameter's value, which may be a tuple of tuples."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for inner in value:
            yield from _texts(inner)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sharegroup")
def cli() -> None:
    """Queues for Kafka: share groups (KIP-932) as a broker, a client and tools."""


def open_closed_files() -> None:
    """Open those of the file descriptors 0 to 2 that the parent process has closed.

    Without this, the next socket would get such a number and receive what the program prints.
    Standard input is opened for writing and standard output for reading, so that using them
    fails: a record that was printed nowhere must not count as consumed.
    """
    streams = (
        ("stdin", os.O_WRONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    )
    for number, (name, flags, mode) in enumerate(streams):
        if getattr(sys, name) is None:
            assert os.open(os.devnull, flags) == number, "the lowest that is free"
            unbuffered = open(number, f"{mode}b", buffering=0, closefd=False)  # noqa: SIM115
            setattr(sys, name, TextIOWrapper(unbuffered, write_through=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Without ``arguments`` this is the program ``sharegroup``: the process runs no other code, which
    the verbs learn from the context's object.
    """
    open_closed_files()
    is_program = arguments is None
    try:
        code = cli.main(
            # Not standalone, because click would end with code 1 for Ctrl-C, and with 0 for a verb
            # that returns 1.
            args=arguments,
            prog_name="sharegroup",
            standalone_mode=False,
            obj=is_program,
        )
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as misuse:
        _advised(misuse).show()
        sys.exit(misuse.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # 128 and the number of SIGINT, as shells report a program that a signal ends.
        sys.exit(130)
    except MissingExtra as error:
        complain(str(error))  # The text says what to install, and a traceback adds nothing.
        sys.exit(1)
    except (KafkaError, OSError) as error:
        complain(f"{type(error).__name__}: {error}")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
