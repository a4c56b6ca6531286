"""What the verbs that talk to a cluster have in common: where it is, how to get in and ask.

`cluster_options` gives a verb an `Access`, `listing_options` a `Form`; `ask` puts one question
to an AdminClient, `show` prints the answer in the form that was wanted, once or repeatedly.
Verbs with a client of their own take their options from `Access.client_options` and run inside
`telling_errors`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import click

from sharegroup.cli.client_properties import client_options
from sharegroup.cli.output import Listing, print_listing, printable
from sharegroup.cli.properties import read_properties
from sharegroup.cli.watch import watch
from sharegroup.client.admin import AdminClient
from sharegroup.client.config import ClientConfig
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    InvalidConfig,
    KafkaError,
    NetworkException,
    NonEmptyGroup,
    RequestTimedOut,
    SaslAuthenticationFailed,
    TlsHandshakeFailed,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

T = TypeVar("T")
Verb = Callable[..., Any]

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
WATCH_SECONDS_MIN = 0.1

ASK_FOR_RIGHTS = "name a user who may in --command-config, or ask for the right"
WHAT_TO_DO: Mapping[type[KafkaError], str] = {
    ClusterAuthorizationFailed: ASK_FOR_RIGHTS,
    GroupAuthorizationFailed: ASK_FOR_RIGHTS,
    GroupIdNotFound: "see which there are with: sharegroup groups list",
    InvalidConfig: "see what there is with: sharegroup configs describe --all --topic NAME "
    "(or --group NAME, or --broker ID)",
    NonEmptyGroup: "stop them and try again",
    SaslAuthenticationFailed: "see the sasl. properties in --command-config",
    TlsHandshakeFailed: "see the ssl. properties in --command-config",
    TopicAlreadyExists: "give --if-not-exists if that is all right",
    TopicAuthorizationFailed: ASK_FOR_RIGHTS,
    UnknownTopicOrPartition: "see which there are with: sharegroup topics list",
    UnsupportedVersion: "share groups need Apache Kafka 4.2 or newer, or sharegroup serve",
}
"""The next step after an error that a person can do something about."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)


@dataclass(frozen=True, slots=True)
class Access:
    """Where the cluster is, how to get in, and how long to try."""

    bootstrap: str
    timeout_ms: int
    properties: Mapping[str, str] = field(repr=False)
    """Of ``--command-config``; there are passwords among them."""

    @classmethod
    def of(cls, bootstrap: str | None, command_config: Path | None, timeout_ms: int) -> Self:
        """As a command line says it."""
        properties = dict(read_properties(command_config)) if command_config else {}
        where = bootstrap or properties.pop("bootstrap.servers", BOOTSTRAP_DEFAULT)
        return cls(where, timeout_ms, properties)

    def client_options(
        self, kind: type[ClientConfig] = ClientConfig, *, warn: Callable[[str], None] = _warn
    ) -> dict[str, Any]:
        """Options for a client whose config is ``kind``; what they don't use is warned of."""
        return {
            "default_api_timeout_ms": self.timeout_ms,
            "connect_timeout_ms": self.timeout_ms,
            **client_options(self.properties, kind, warn=warn),
            "bootstrap_servers": self.bootstrap,
        }


@dataclass(frozen=True, slots=True)
class Form:
    """How a listing is wanted: a table or JSON, once or every so many seconds."""

    as_json: bool
    watch_s: float | None


def cluster_options(verb: Verb) -> Verb:
    """Give a verb the options that say where the cluster is; it is called with ``access``."""

    @functools.wraps(verb)
    def with_access(
        *, bootstrap: str | None, command_config: Path | None, timeout_ms: int, **rest: Any
    ) -> Any:
        return verb(access=Access.of(bootstrap, command_config, timeout_ms), **rest)

    for option in (
        click.option(
            "--timeout",
            "timeout_ms",
            type=click.IntRange(1),
            default=10_000,
            show_default=True,
            metavar="MS",
            help="Give up after so long.",
        ),
        click.option(
            "--command-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Client properties as for Kafka's tools: security.protocol, sasl., ssl., ...",
        ),
        click.option(
            "--bootstrap",
            "--bootstrap-server",
            metavar="HOST:PORT,...",
            help="Where a broker of the cluster is.  [default: --command-config's, or "
            f"{BOOTSTRAP_DEFAULT}]",
        ),
    ):
        with_access = option(with_access)
    return with_access


def listing_options(verb: Verb) -> Verb:
    """Give a verb ``--json`` and ``--watch``; it is called with ``form``."""

    @functools.wraps(verb)
    def with_form(*, as_json: bool, watch_s: float | None, **rest: Any) -> Any:
        return verb(form=Form(as_json, watch_s), **rest)

    for option in (
        json_option,
        click.option(
            "--watch",
            "watch_s",
            type=click.FloatRange(WATCH_SECONDS_MIN),
            metavar="SECONDS",
            help="Again and again; a pipe or file gets a line of JSON each time.",
        ),
    ):
        with_form = option(with_form)
    return with_form


def ask(access: Access, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Put a question to the cluster and wait for the answer, within the timeout."""

    async def run() -> T:
        async with AdminClient(**access.client_options()) as admin:
            return await question(admin)

    with telling_errors(access):
        return asyncio.run(run())


def show(access: Access, form: Form, question: Callable[[AdminClient], Awaitable[Listing]]) -> None:
    """Print the answer to a question in the form that is wanted."""
    every_s = form.watch_s
    if every_s is not None:
        ask(access, lambda admin: watch(lambda: question(admin), every_s, as_json=form.as_json))
        return
    listing = ask(access, question)
    print_listing(listing, as_json=form.as_json)
    refuse(listing.failures)


@contextmanager
def telling_errors(access: Access) -> Iterator[None]:
    """Turn what the cluster or the way to it refuses into one line and an exit code."""
    try:
        yield
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    except (NetworkException, RequestTimedOut) as error:
        raise click.ClickException(
            f"no answer from {access.bootstrap}: {error}; see that a broker listens there "
            "(sharegroup serve), or name another with --bootstrap-server"
        ) from error
    except KafkaError as error:
        raise click.ClickException(line_of(error)) from error


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a mapping; anything else is a misuse of ``option``."""
    return {key.strip(): value.strip() for key, value in kept_pairs(texts, option).items()}


def kept_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`pairs` with the values as they are: a separator may be a blank."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def refuse_errors(results: Mapping[Any, object]) -> None:
    """Fail with one line for each item that the broker refused, if there is any."""
    refuse(error for error in results.values() if isinstance(error, KafkaError))


def refuse(errors: Iterable[KafkaError]) -> None:
    """Fail with one line for each of these errors, if there is any."""
    lines = [line_of(error) for error in errors]
    if lines:
        raise click.ClickException("\n       ".join(lines))


def line_of(error: KafkaError) -> str:
    """An error in one line, with the next step if there is one."""
    hint = WHAT_TO_DO.get(type(error))
    text = printable(str(error).rstrip("."))
    return f"{type(error).__name__}: {text}" + (f"; {hint}" if hint else "")
