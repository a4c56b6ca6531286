"""Writes the documents that are made from the code: `python -m tests.write_docs`.

`tests/test_docs.py` fails while a document is not what this would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from sharegroup.broker.config import (
    COMPATIBLE,
    CoordinatorConfig,
    GroupConfig,
    LogConfig,
    ServerConfig,
    ShareGroupConfig,
    TopicConfig,
)
from sharegroup.broker.config_values import entries, value_text
from sharegroup.broker.dispatch import MODULES
from sharegroup.cli.main import VERBS, cli
from sharegroup.wire.apis import APIS

DOCS = Path(__file__).resolve().parent.parent / "docs"
MADE = "<!-- Made by `python -m tests.write_docs` from the code; do not edit. -->"


def documents() -> dict[str, str]:
    """Name and text of every document that is made from the code."""
    return {
        "config.md": "\n".join(config()) + "\n",
        "protocol.md": "\n".join(protocol()) + "\n",
        "cli.md": "\n".join(command_line()) + "\n",
    }


def config() -> Iterator[str]:
    yield "# Configuration"
    yield f"\n{MADE}\n"
    yield "Names, defaults and ranges are Kafka's own; `sharegroup.` begins the names of ours."
    yield "Give them with `--set KEY=VALUE` or in a `server.properties`.\n"
    for title, part in (
        ("Broker: server", ServerConfig),
        ("Broker: logs", LogConfig),
        ("Broker: share groups", ShareGroupConfig),
        ("Broker: coordinators", CoordinatorConfig),
        ("Topic", TopicConfig),
        ("Group", GroupConfig),
    ):
        yield f"## {title}\n"
        yield "| key | default | range | what |"
        yield "|---|---|---|---|"
        for entry in entries(part):
            fact = entry.metadata
            default = f"as `{fact['synonym']}`" if entry.default is None else shown(entry.default)
            text = fact["text"] if fact["effect"] else f"{fact['text']} (Accepted, no effect.)"
            yield f"| `{fact['name']}` | {default} | {range_of(fact)} | {text} |"
        yield ""
    yield "## Read and passed over\n"
    yield "These keys of a common `server.properties` mean nothing on one node:\n"
    yield ", ".join(f"`{name}`" for name in sorted(COMPATIBLE)) + "."


def shown(value: object) -> str:
    text = value_text(value)
    return f"`{text}`" if text else "empty"


def range_of(fact: dict[str, object]) -> str:
    if fact["choices"]:
        return ", ".join(f"`{choice}`" for choice in fact["choices"])  # type: ignore[union-attr]
    low, high = fact["low"], fact["high"]
    if low is None and high is None:
        return ""
    return f"{'' if low is None else low}…{'' if high is None else high}"


def protocol() -> Iterator[str]:
    yield "# Protocol"
    yield f"\n{MADE}\n"
    yield "The requests that are served. What is not here is not advertised.\n"
    yield "| key | request | versions | handler |"
    yield "|---|---|---|---|"
    for api in APIS.values():
        name = MODULES[api.key]
        handler = f"[{name}](../src/sharegroup/broker/handlers/{name}.py)"
        yield f"| {api.key} | {api.name} | {api.oldest} to {api.newest} | {handler} |"


def command_line() -> Iterator[str]:
    yield "# Command line"
    yield f"\n{MADE}\n"
    yield "Exit codes: 0 done, 1 failed (one line on standard error says why), 2 misused.\n"
    yield from page(cli, "sharegroup")
    context = click.Context(cli, info_name="sharegroup")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        yield from page(command, f"sharegroup {verb}")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from page(inner, f"sharegroup {verb} {name}")


def page(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=name,
        terminal_width=96,
        max_content_width=96,
        # click remembers them with the command, from whoever asks first.
        help_option_names=cli.context_settings["help_option_names"],
    )
    yield f"## {name}\n"
    yield "```"
    yield command.get_help(context)
    yield "```\n"


def main() -> None:
    for name, text in documents().items():
        (DOCS / name).write_text(text)
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
