"""Options of Kafka's console consumers that have another name, or no counterpart, here.

Some are deprecated in Kafka itself. Those that can be honoured are accepted. The others are
answered with what to use instead. `--help` does not list them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.common.options import Verb
from sharegroup.cli.common.properties import read_properties

PLAIN_FORMATTER = "DefaultMessageFormatter"
FORMATTERS = {
    "NoOpMessageFormatter": "redirect the output to /dev/null",
    "LoggingMessageFormatter": "--json",
    "OffsetsMessageFormatter": "sharegroup tail __consumer_offsets --decode state",
    "GroupMetadataMessageFormatter": "sharegroup tail __consumer_offsets --decode state",
    "CoordinatorRecordMessageFormatter": "sharegroup tail TOPIC --decode state",
    "ShareGroupStateMessageFormatter": "sharegroup tail __share_group_state --decode state",
}
"""What to use in place of Kafka's formatters, by the last part of the class name."""

PLAIN_DESERIALIZERS = (
    "StringDeserializer",
    "ByteArrayDeserializer",
    "BytesDeserializer",
    "ByteBufferDeserializer",
)
"""Deserializers whose values are printed as their bytes, as this command does anyway."""

ANSWERS = {
    "--include": "the names of the topics, one after the other",
    "--whitelist": "the names of the topics, one after the other",
    "--isolation-level": "sharegroup configs alter --group GROUP --set share.isolation.level=LEVEL "
    "(with --group-type consumer: --command-property isolation.level=LEVEL)",
    "--offset": "sharegroup tail TOPIC --partition N --offsets FIRST:, which needs no group",
    "--partition": "sharegroup tail TOPIC --partition N, which needs no group",
}
"""What to use in place of options without a counterpart."""


def kafka_consumer_options(verb: Verb) -> Verb:
    """Accept the names of Kafka's tools for the client properties of a consuming verb.

    It goes above `cluster_options`, whose ``command_config`` it sets.
    """

    @functools.wraps(verb)
    def with_config(*, consumer_config: Path | None, **rest: Any) -> Any:
        if consumer_config is not None and rest["command_config"] is not None:
            raise click.UsageError("--consumer-config is --command-config: give only one of them")
        rest["command_config"] = rest["command_config"] or consumer_config
        return verb(**rest)

    option = click.option(
        "--consumer-config",
        "--consumer.config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        hidden=True,
    )
    return option(with_config)


def kafka_formatter_options(verb: Verb) -> Verb:
    """Accept, or answer, the options of Kafka's console consumers for the output.

    It goes above `record_format_options`, whose ``properties`` it extends.
    """

    @functools.wraps(verb)
    def with_formatter(*, formatter_config: Path | None, **rest: Any) -> Any:
        if formatter_config is not None:
            in_file = (f"{name}={value}" for name, value in read_properties(formatter_config))
            rest["properties"] = (*in_file, *rest["properties"])
        return verb(**rest)

    for option in (
        click.option(
            "--formatter-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            hidden=True,
        ),
        click.option("--formatter", hidden=True, expose_value=False, callback=_check_formatter),
        click.option(
            "--key-deserializer", hidden=True, expose_value=False, callback=_check_deserializer
        ),
        click.option(
            "--value-deserializer", hidden=True, expose_value=False, callback=_check_deserializer
        ),
        *(
            click.option(name, hidden=True, expose_value=False, callback=_answer)
            for name in ANSWERS
        ),
    ):
        with_formatter = option(with_formatter)
    return with_formatter


def _check_formatter(_: click.Context, __: click.Parameter, name: str | None) -> None:
    if name is None or _last(name) == PLAIN_FORMATTER:
        return
    instead = FORMATTERS.get(_last(name), "--format or --json")
    raise click.UsageError(f"--formatter {name}: Java classes are not supported; use {instead}")


def _check_deserializer(_: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is None or _last(name) in PLAIN_DESERIALIZERS:
        return
    verb = "%k" if option.opts[0].startswith("--key") else "%v"
    raise click.UsageError(
        f"{option.opts[0]} {name}: Java classes are not supported; bytes are printed as they are, "
        f"or use --format '{verb}{{hex}}\\n' (also base64, string and json)"
    )


def _answer(_: click.Context, option: click.Parameter, given: object) -> None:
    name = option.opts[0]
    if given is not None:
        raise click.UsageError(f"{name} is not an option of this command; use {ANSWERS[name]}")


def _last(class_name: str) -> str:
    return class_name.rpartition(".")[2].rpartition("$")[2]
