"""The telemetry of clients (KIP-714): subscriptions from the catalog, instances, pushed values.

An administrator creates resources of type ``client-metrics``.  Clients ask for the metrics that
these request from them, and push the values, which `metrics.client_values` shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

import crc32c

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.clock import Clock
from sharegroup.core.security.principal import Principal
from sharegroup.errors import CorruptMessage, InvalidConfig, InvalidRecord, InvalidRequest
from sharegroup.ids import uuid_text
from sharegroup.steps import STEP_ELEMENTS, Steps

if TYPE_CHECKING:
    # Imported at first use, because most brokers have no subscriptions.
    from sharegroup.core.client_telemetry.client_instances import ClientInstances, Push
    from sharegroup.core.client_telemetry.pushed_values import PushedValues
    from sharegroup.core.client_telemetry.subscriptions import (
        ClientIdentity,
        RequestedMetrics,
        Subscription,
    )

log = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX = 250
"""Characters that are kept of a text with which a client describes itself."""

RESERVED_IDS = (UUID(int=0), UUID(int=1))


class Sender(NamedTuple):
    """The connection that a telemetry request came from, and the client as it names itself."""

    connection_id: int
    peer: Peer
    client_id: str
    user: Principal | None = None
    """The user if its rights are limited, otherwise None."""


class ClientTelemetry:
    """The subscriptions, clients and pushed values of one broker."""

    __slots__ = (
        "_clock",
        "_instance_of",
        "_instances",
        "_settings",
        "_software",
        "_subscriptions",
        "_user_percent",
        "_values",
        "_version",
    )

    def __init__(
        self,
        clock: Clock,
        settings: Callable[[], Mapping[str, Mapping[str, str]]],
        *,
        user_percent: int = 100,
    ) -> None:
        """``user_percent`` is ``sharegroup.user.limits.percent``."""
        self._clock = clock
        self._settings = settings
        self._version = 0
        self._subscriptions: tuple[Subscription, ...] = ()
        self._software: dict[int, tuple[str, str]] = {}
        """Name and version of the client's software, by connection."""
        self._instance_of: dict[int, UUID] = {}
        """The instance that was first heard of on a connection."""
        self._user_percent = user_percent
        self._instances: ClientInstances | None = None
        self._values: PushedValues | None = None
        self.settings_changed()

    @property
    def instances(self) -> ClientInstances:
        """The clients that have asked for a subscription."""
        if self._instances is None:
            # Imported at first use, because most clients of most brokers push no metrics.
            from sharegroup.core.client_telemetry.client_instances import ClientInstances

            self._instances = ClientInstances(user_percent=self._user_percent)
        return self._instances

    @property
    def values(self) -> PushedValues:
        """The last values that clients have pushed."""
        if self._values is None:
            # Imported at first use, like the instances.
            from sharegroup.core.client_telemetry.pushed_values import PushedValues

            self._values = PushedValues(user_percent=self._user_percent)
        return self._values

    @property
    def has_subscriptions(self) -> bool:
        """Whether a client may have to push metrics."""
        return bool(self._subscriptions)

    def settings_changed(self) -> None:
        """Read the subscriptions anew; clients get theirs with their next request."""
        self._version += 1
        self._subscriptions = tuple(_subscriptions(self._settings()))

    def note_software(self, connection_id: int, name: str, version: str) -> None:
        """Remember the software that the client of a connection names in ApiVersions."""
        self._software[connection_id] = name[:TEXT_CHARACTERS_MAX], version[:TEXT_CHARACTERS_MAX]

    def connection_closed(self, connection_id: int) -> None:
        """Forget the connection and its instance; the values stay until they are out of date."""
        self._software.pop(connection_id, None)
        instance_id = self._instance_of.pop(connection_id, None)
        if instance_id is not None:
            self.instances.forget(instance_id)

    def subscribe(
        self, sender: Sender, instance_id: UUID | None
    ) -> tuple[UUID, int, RequestedMetrics]:
        """Return the client's instance id, and the id and contents of its subscription.

        A client that has no instance id yet gets one.
        """
        if instance_id is None or instance_id in RESERVED_IDS:
            instance_id = uuid4()
        self._remember(sender, instance_id)
        subscription_id, requested = self.instances.subscription_of(
            instance_id, now_ms=self._clock.now_ms()
        )
        return instance_id, subscription_id, requested

    def check_push(
        self, sender: Sender, instance_id: UUID | None, push: Push, *, bytes_max: int
    ) -> RequestedMetrics:
        """Return the subscription that the push is for; raise an error if it is refused."""
        if instance_id is None or instance_id in RESERVED_IDS:
            raise InvalidRequest(f"a push needs the client's instance id, not {instance_id}")
        requested = self._remember(sender, instance_id)
        self.instances.check_push(
            instance_id, push, now_ms=self._clock.now_ms(), bytes_max=bytes_max
        )
        return requested

    def store(
        self,
        sender: Sender,
        instance_id: UUID,
        payload: bytes,
        *,
        codec: int,
        bytes_max: int,
        interval_ms: int,
    ) -> Steps[None]:
        """Read the metrics of an accepted push in steps, and store their values."""
        # Imported at first use, like the instances.
        from sharegroup.core.client_telemetry.pushed_values import silent_from_ms
        from sharegroup.wire.batches.compression import decompress
        from sharegroup.wire.otlp_metrics import read_metrics

        try:
            plain = bytes(decompress(codec, payload, bytes_max=bytes_max))
        except CorruptMessage as error:
            raise InvalidRecord(f"the pushed metrics: {error}") from error
        metrics = yield from read_metrics(plain)
        self.values.dropped_count += metrics.skipped_count
        client, now_ms = self._identity(sender, instance_id), self._clock.now_ms()
        self.values.expire(now_ms=now_ms)
        due_ms = silent_from_ms(now_ms, interval_ms=interval_ms)
        for first in range(0, len(metrics.values), STEP_ELEMENTS):
            self.values.put(
                instance_id,
                client,
                metrics.labels,
                metrics.values[first : first + STEP_ELEMENTS],
                due_ms=due_ms,
                owner=sender.user,
            )
            yield

    def _remember(self, sender: Sender, instance_id: UUID) -> RequestedMetrics:
        """Make the instance known with its present subscription, and return that."""
        client = self._identity(sender, instance_id)
        # Imported at first use, like the instances.
        from sharegroup.core.client_telemetry.subscriptions import requested_metrics

        if not self.instances.knows(instance_id, self._version):
            requested = requested_metrics(self._subscriptions, client)
            self.instances.put(
                instance_id,
                requested,
                _subscription_id(instance_id, requested),
                self._version,
                sender.user,
            )
            self._instance_of[sender.connection_id] = instance_id
        return self.instances.requested(instance_id)

    def _identity(self, sender: Sender, instance_id: UUID) -> ClientIdentity:
        # Imported at first use, like the instances.
        from sharegroup.core.client_telemetry.subscriptions import ClientIdentity

        name, version = self._software.get(sender.connection_id, ("", ""))
        return ClientIdentity(
            client_instance_id=uuid_text(instance_id),
            client_id=sender.client_id[:TEXT_CHARACTERS_MAX],
            client_software_name=name,
            client_software_version=version,
            client_source_address=sender.peer.host,
            client_source_port=str(sender.peer.port),
        )


def _subscriptions(resources: Mapping[str, Mapping[str, str]]) -> Iterator[Subscription]:
    """Parse the resources; leave out those that another version of sharegroup has allowed."""
    if not resources:
        return
    # Imported at first use, because most brokers have no subscriptions.
    from sharegroup.broker.configuration.client_metrics_config import parse_client_metrics

    for name, settings in resources.items():
        try:
            yield parse_client_metrics(name, settings)
        except (InvalidConfig, InvalidRequest) as error:
            log.warning("event=client_metrics_left_out name=%r error=%r", name, str(error))


def _subscription_id(instance_id: UUID, requested: RequestedMetrics) -> int:
    """Return an id that depends on nothing but the instance and its subscription."""
    text = "\n".join((*requested.metrics, str(requested.interval_ms)))
    digest = crc32c.crc32c(text.encode("utf-8", "surrogatepass") + instance_id.bytes)
    return digest - 2**32 if digest >= 2**31 else digest
