"""Options and helpers of the verbs that talk to a cluster: address, credentials and requests.

`cluster_options` gives a verb an `Access`, `listing_options` a `Form`. `ask` runs one request on
an AdminClient. `show` prints the response in the form that the user chose, once or repeatedly.
Verbs with a client of their own take its options from `Access.client_options` and run inside
`telling_errors`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from sharegroup.cli.common.client_properties import client_options
from sharegroup.cli.common.options import FiniteRange, gathered
from sharegroup.cli.common.output import Listing, complain, print_listing, printable
from sharegroup.cli.common.properties import read_properties
from sharegroup.cli.common.running import lacks_broker, telling_waits
from sharegroup.cli.common.watch import view_of, watch
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.settings.cluster_choice import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLE,
    NamedAddress,
    choose_cluster,
)
from sharegroup.client.settings.profiles import (
    BOOTSTRAP_PROPERTY,
    PROFILE_VARIABLE,
    named_profile,
    profile_names,
)
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    GroupSubscribedToTopic,
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
from sharegroup.suggestions import did_you_mean

if TYPE_CHECKING:
    # Imported for their types alone: most verbs read no records, and see `_admin_client`.
    from sharegroup.client.admin.admin_client import AdminClient
    from sharegroup.client.fetch.record_reading import PartitionRange

T = TypeVar("T")

BROKER_LIST_PROPERTY = "metadata.broker.list"
"""What librdkafka also calls `BOOTSTRAP_PROPERTY`."""
OTHER_BOOTSTRAP = re.compile(r"(?i)(^|[._-])bootstrap[._-]servers$")
"""Names of bootstrap servers in the files of other programs."""
PROPERTY_OPTION = "--command-property"
BOOTSTRAP_OPTION, CONFIG_OPTION, PROFILE_OPTION = (
    "--bootstrap-server",
    "--command-config",
    "--profile",
)
WATCH_SECONDS_MIN = 0.1
COMPLETION_MS = 1_000
"""Maximum time to wait for names that complete or correct what a user types."""
ACCESS_KEY = "sharegroup.access"
"""The key of a command line's `Access` in click's context."""
MISSING_NAME = re.compile(r"\b(?:group|topic) (?P<quote>['\"])(?P<name>.*?)(?P=quote)")
"""The name in the text of an error: ``topic 'orders' does not exist``."""

Names = Sequence[str]

ASK_FOR_RIGHTS = (
    "in --command-config or in the profile, use the credentials of a user with this permission, or "
    "request it"
)
WHAT_TO_DO: Mapping[type[KafkaError], str] = {
    ClusterAuthorizationFailed: ASK_FOR_RIGHTS,
    GroupAuthorizationFailed: ASK_FOR_RIGHTS,
    GroupSubscribedToTopic: "stop the members and try again",
    GroupIdNotFound: "list the groups with: sharegroup groups list",
    InvalidConfig: "list the settings with: sharegroup configs describe --all --topic NAME "
    "(or --group NAME, or --broker ID)",
    NonEmptyGroup: "stop the members and try again",
    SaslAuthenticationFailed: "check the sasl. properties in --command-config or in the profile",
    TlsHandshakeFailed: "check the ssl. properties in --command-config or in the profile",
    TopicAlreadyExists: "add --if-not-exists to accept an existing topic",
    TopicAuthorizationFailed: ASK_FOR_RIGHTS,
    UnknownTopicOrPartition: "list the topics with: sharegroup topics list",
    UnsupportedVersion: "share groups need Apache Kafka 4.2 or newer, or sharegroup serve",
}
"""The next step to suggest for each error that a user can correct."""


def complete_profiles(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles whose names begin with ``incomplete``; none if the file is unusable."""
    try:
        return [name for name in profile_names() if name.startswith(incomplete)]
    except InvalidConfig:
        return []  # A shell cannot show an error while it completes a word.


profile_option = click.option(
    PROFILE_OPTION,
    "profile",
    metavar="NAME",
    shell_complete=complete_profiles,
    help=f"Profile in the configuration file.  [default: {PROFILE_VARIABLE}, or the default there]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _refuse_other_files(properties: Mapping[str, str]) -> None:
    """Raise UsageError if a file names servers, but as another program does (Spring, MirrorMaker).

    Without this, such a command would go to the default address.
    """
    for name in properties:
        if OTHER_BOOTSTRAP.search(name):
            raise click.UsageError(
                f"{CONFIG_OPTION}: the file has {name}, a property of another program, and no "
                f"{BOOTSTRAP_PROPERTY}; name the servers with that, or with {BOOTSTRAP_OPTION}"
            )


def _warn(text: str) -> None:
    click.echo(f"Warning: {printable(text)}", err=True)


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """What the options of a command line name: addresses, and properties with their origins."""

    addresses: tuple[NamedAddress, ...]
    properties: Mapping[str, str] = field(repr=False)
    """They may contain passwords, so repr hides them."""
    origins: tuple[str, ...]

    @classmethod
    def of(
        cls, bootstrap_servers: str | None, command_config: Path | None, profile: str | None
    ) -> Self:
        """Read the file of ``--command-config`` and the profile of ``--profile``."""
        properties = dict(read_properties(command_config)) if command_config else {}
        in_file = properties.pop(BOOTSTRAP_PROPERTY, properties.pop(BROKER_LIST_PROPERTY, None))
        if not (bootstrap_servers or in_file):
            _refuse_other_files(properties)
        of_profile: dict[str, str] = {}
        origins: tuple[str, ...] = ()
        if profile is not None:
            try:
                chosen = named_profile(profile, PROFILE_OPTION)
            except InvalidConfig as error:
                raise click.UsageError(str(error)) from error
            of_profile, origins = dict(chosen.properties), (str(chosen),)
        in_profile = of_profile.pop(BOOTSTRAP_PROPERTY, None)
        return cls(
            (
                NamedAddress(bootstrap_servers, BOOTSTRAP_OPTION),
                NamedAddress(in_file, CONFIG_OPTION),
                NamedAddress(in_profile, *origins or (PROFILE_OPTION,)),
            ),
            {**of_profile, **properties},
            (*origins, CONFIG_OPTION) if command_config else origins,
        )


@dataclass(frozen=True, slots=True)
class Access:
    """The address of the cluster, the client properties for it, and the timeout."""

    bootstrap_servers: str
    timeout_ms: int
    properties: Mapping[str, str] = field(repr=False)
    """The client properties. They may contain passwords, so repr hides them."""
    address_origin: str = BOOTSTRAP_OPTION
    """What named the address, for messages: an option, a variable or a profile."""
    properties_origin: str = CONFIG_OPTION
    """What named the properties, for messages."""
    implied_properties: frozenset[str] = frozenset()
    """The names of properties from a profile that no option named: they are for its address."""

    @classmethod
    def of(
        cls,
        bootstrap_servers: str | None,
        command_config: Path | None,
        timeout_ms: int,
        profile: str | None = None,
    ) -> Self:
        """Create the access from the options of a command line, the environment and a profile.

        The address is that of the first of these that has one: ``--bootstrap-server``,
        ``--command-config``, ``--profile``, and then those of `choose_cluster`.
        """
        named = NamedCluster.of(bootstrap_servers, command_config, profile)
        try:
            choice = choose_cluster(named.addresses, may_imply=profile is None)
        except InvalidConfig as error:
            raise click.UsageError(str(error)) from error
        choice.log("sharegroup")
        origins = (str(choice.profile),) if choice.profile else ()
        return cls(
            choice.bootstrap_servers,
            timeout_ms,
            {**choice.properties, **named.properties},
            choice.origin,
            " and ".join((*origins, *named.origins)) or CONFIG_OPTION,
            frozenset(choice.properties.keys() - named.properties),
        )

    def with_properties(self, overrides: Mapping[str, str]) -> Self:
        """Return the access with these properties, of which one may be another address."""
        others = dict(overrides)
        address = others.pop(BOOTSTRAP_PROPERTY, None)
        if address is None:
            return replace(self, properties={**self.properties, **others})
        # The passwords of a profile that applies by default must not be sent to this address.
        kept = {
            name: text
            for name, text in self.properties.items()
            if name not in self.implied_properties
        }
        return replace(
            self,
            bootstrap_servers=address,
            properties={**kept, **others},
            address_origin=PROPERTY_OPTION,
            implied_properties=frozenset(),
        )

    @property
    def where(self) -> str:
        """The address, with what named it unless that is the obvious option."""
        if self.address_origin == BOOTSTRAP_OPTION:
            return self.bootstrap_servers
        return f"{self.bootstrap_servers} ({self.address_origin})"

    def client_options(
        self, kind: type[ClientConfig] = ClientConfig, *, warn: Callable[[str], None] = _warn
    ) -> dict[str, Any]:
        """Return options for a client whose config is ``kind``; warn of unused properties."""
        return {
            # In this order: a property overrides --timeout, and nothing overrides the address.
            "default_api_timeout_ms": self.timeout_ms,
            "connect_timeout_ms": self.timeout_ms,
            **client_options(self.properties, kind, warn=warn, origin=self.properties_origin),
            "bootstrap_servers": self.bootstrap_servers,
        }


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a listing: as a table or JSON, once or every ``watch_s`` seconds."""

    as_json: bool
    watch_s: float | None


def _remembered(**options: Any) -> Access:
    """Return the access of a command line, and keep it for suggestions in errors."""
    access = Access.of(**options)
    click.get_current_context().meta[ACCESS_KEY] = access
    return access


cluster_options = gathered(
    "access",
    _remembered,
    click.option(
        BOOTSTRAP_OPTION,
        "--bootstrap",
        "bootstrap_servers",
        metavar="HOST:PORT,...",
        help="Brokers to connect to first.  [default: from --command-config, the profile or "
        f"{BOOTSTRAP_VARIABLE}, or {BOOTSTRAP_DEFAULT}]",
    ),
    profile_option,
    click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with client properties, as for Kafka's tools: security.protocol, sasl., "
        "ssl., ...",
    ),
    click.option(
        "--timeout",
        "timeout_ms",
        type=click.IntRange(1),
        default=10_000,
        show_default=True,
        metavar="MS",
        help="Timeout in milliseconds.",
    ),
)
"""Adds the options of the cluster to a verb, which is called with ``access``."""

listing_options = gathered(
    "form",
    Form,
    click.option(
        "--watch",
        "watch_s",
        type=FiniteRange(WATCH_SECONDS_MIN),
        metavar="SECONDS",
        help="Repeat at this interval; a pipe or file gets a line of JSON each time.",
    ),
    json_option,
)
"""Adds ``--json`` and ``--watch`` to a verb, which is called with ``form``."""


def ask(
    access: Access,
    question: Callable[[AdminClient], Awaitable[T]],
    *,
    tell: Callable[[str], None] | None = None,
) -> T:
    """Run a request on an AdminClient and return its result; errors become one line.

    ``tell`` shows on a terminal that no broker answers; None: as a line on standard error.
    """

    async def run() -> T:
        async with (
            _admin_client(access) as admin,
            telling_waits(access.bootstrap_servers, lambda: lacks_broker(admin.metrics()), tell),
        ):
            return await question(admin)

    with telling_errors(access):
        return asyncio.run(run())


def _admin_client(access: Access, *, warn: Callable[[str], None] = _warn) -> AdminClient:
    # Imported here, because its requests of all kinds take a tenth of a second, and verbs with a
    # client of their own need a few of them: `dlq redrive` for example.
    from sharegroup.client.admin.admin_client import AdminClient

    return AdminClient(**access.client_options(warn=warn))


def show(access: Access, form: Form, question: Callable[[AdminClient], Awaitable[Listing]]) -> None:
    """Run a request and print its listing as ``form`` says, once or repeatedly."""
    every_s = form.watch_s
    if every_s is not None:
        view = view_of(every_s, as_json=form.as_json)
        ask(access, lambda admin: watch(view, lambda: question(admin), every_s), tell=view.note)
        return
    listing = ask(access, question)
    print_listing(listing, as_json=form.as_json)
    refuse(listing.failures)


@contextmanager
def telling_errors(access: Access) -> Iterator[None]:
    """Turn errors of the cluster and of the connection into one line and an exit code."""
    try:
        yield
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    except (NetworkException, RequestTimedOut) as error:
        if error.is_of_advertised:  # The bootstrap server does answer.
            raise click.ClickException(line_of(error)) from error
        raise click.ClickException(
            f"no response from {access.where}: {error}; check that a broker listens there "
            f"(sharegroup serve), or give another address with {BOOTSTRAP_OPTION}, "
            f"{BOOTSTRAP_VARIABLE} or {PROFILE_OPTION}"
        ) from error
    except KafkaError as error:
        raise click.ClickException(line_of(error)) from error


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` texts, stripping blanks; other texts are a misuse of ``option``."""
    return {key.strip(): value.strip() for key, value in kept_pairs(texts, option).items()}


def kept_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse as `pairs` does, but keep blanks: a separator may be a blank."""
    values = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint=option)
        values[key] = value
    return values


def refuse_errors(results: Mapping[Any, object]) -> None:
    """Fail with one line for each item that the broker refused; return if it refused none."""
    refuse(error for error in results.values() if isinstance(error, KafkaError))


def refuse(errors: Iterable[KafkaError]) -> None:
    """Fail with one line for each of these errors; return if there are none."""
    lines = [line_of(error) for error in errors]
    if lines:
        raise click.ClickException("\n       ".join(lines))


def line_of(error: KafkaError) -> str:
    """Return an error as one line, with the next step if `WHAT_TO_DO` has one.

    For a group or a topic that does not exist this is a similar name, if the cluster has one.
    """
    hint = WHAT_TO_DO.get(type(error))
    text = printable(str(error).rstrip("."))
    suggestion = similar_name(error)
    if suggestion:
        return f"{type(error).__name__}: {text}{suggestion}"
    return f"{type(error).__name__}: {text}" + (f"; {hint}" if hint else "")


def similar_name(error: KafkaError) -> str:
    """Return the end of a sentence that suggests a name for the one that does not exist."""
    list_names = LISTS.get(type(error))
    missing = MISSING_NAME.search(str(error))
    context = click.get_current_context(silent=True)
    access = None if context is None else context.meta.get(ACCESS_KEY)
    if list_names is None or missing is None or context is None or not isinstance(access, Access):
        return ""
    return did_you_mean(missing["name"], _names_of(context, access, list_names))


def _names_of(
    context: click.Context, access: Access, list_names: Callable[[AdminClient], Awaitable[Names]]
) -> Names:
    """Return the names in the cluster, which is asked once; none if it does not answer."""
    known: dict[object, Names] = context.meta.setdefault(f"{ACCESS_KEY}.names", {})
    if list_names not in known:
        known[list_names] = ()
        # On a thread of its own, because an event loop may be running on this one.
        with suppress(KafkaError, OSError, click.ClickException), ThreadPoolExecutor(1) as pool:
            names = ask_briefly(access, list_names, COMPLETION_MS)
            known[list_names] = pool.submit(asyncio.run, names).result()
    return known[list_names]


async def ask_briefly(
    access: Access, list_names: Callable[[AdminClient], Awaitable[T]], limit_ms: int
) -> T:
    """Return what a request for something that is only useful at once gives.

    KafkaError and OSError (TimeoutError) if there is no answer in time.
    """
    client = _admin_client(replace(access, timeout_ms=limit_ms), warn=lambda _: None)
    async with asyncio.timeout(limit_ms / 1000):
        async with client as admin:
            return await list_names(admin)


async def list_group_names(admin: AdminClient) -> Names:
    """Return the ids of the groups of every type."""
    return [group.group_id for group in await admin.list_groups()]


async def list_topic_names(admin: AdminClient) -> Names:
    """Return the names of the topics."""
    return list(await admin.list_topics())


LISTS: Mapping[type[KafkaError], Callable[[AdminClient], Awaitable[Names]]] = {
    GroupIdNotFound: list_group_names,
    UnknownTopicOrPartition: list_topic_names,
}
"""How to find the names that a missing one may stand for."""


class UnreadableBatches:
    """Prints a line for each batch that cannot be read; a verb that had one ends with code 1."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: PartitionRange, error: KafkaError) -> None:
        self.count += 1
        complain(unreadable_text(batch, error))

    @property
    def exit_code(self) -> int:
        """1 if a batch was omitted."""
        return 1 if self.count else 0


def unreadable_text(batch: PartitionRange, error: KafkaError) -> str:
    """Return a sentence about a batch that cannot be read and is left out."""
    topic, partition = batch.where
    return (
        f"topic {topic!r} partition {partition} offsets {batch.first} to {batch.end - 1} "
        f"cannot be read and are omitted: {error}"
    )
