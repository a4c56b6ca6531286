"""Chooses the cluster that an App, a script, a test or a command talks to: one order for all.

    an explicit argument            --bootstrap-server; client(bootstrap_servers=...)
    the variable                    SHAREGROUP_BOOTSTRAP
    the App's own                   App(..., bootstrap_servers=...)
    the profile that applies        SHAREGROUP_PROFILE, or the default of the configuration file
    the default                     127.0.0.1:9092

A sender and the worker of one App therefore use the same cluster, whichever started them.  The
properties of a profile apply only together with its address: its passwords must not be sent to
another one (`profiles`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.settings.client_config import BootstrapServers, addresses_of
from sharegroup.client.settings.profiles import BOOTSTRAP_PROPERTY, Profile, implied_profile
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

BOOTSTRAP_VARIABLE = "SHAREGROUP_BOOTSTRAP"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
NOT_NAMED = "the default"


class NamedAddress(NamedTuple):
    """An address and what names it, for messages; None or an empty address names nothing."""

    bootstrap_servers: BootstrapServers | None
    origin: str


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The cluster to talk to: its address, what named it, and the properties of its profile."""

    bootstrap_servers: str
    origin: str
    """What named the address: an option, a variable, an App, a profile, or `NOT_NAMED`."""
    profile: Profile | None = None
    """The profile that gave the address because nothing else did."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The other properties of that profile.  They may contain passwords, so repr hides them."""
    unused: NamedAddress | None = None
    """The address that the App declares, if another one was chosen."""

    @property
    def where(self) -> str:
        """The address with what named it, for errors."""
        return f"{self.bootstrap_servers} ({self.origin})"

    def log(self, program: str) -> None:
        """Log the choice in one line; ``program`` is the App or the command that made it."""
        unused = f" unused={_joined(self.unused[0] or '')}" if self.unused else ""
        log.info(
            "event=cluster.chosen program=%s bootstrap=%s origin=%r%s",
            *(program, self.bootstrap_servers, self.origin, unused),
        )


def choose_cluster(
    explicit: Iterable[NamedAddress] = (),
    own: NamedAddress | None = None,
    *,
    may_imply: bool = True,
) -> ClusterChoice:
    """Return the first cluster that is named; raises InvalidConfig for an address that is none.

    ``own`` is what an App declares.  Without ``may_imply`` no profile applies that nobody named.
    """
    variable = NamedAddress(os.environ.get(BOOTSTRAP_VARIABLE), BOOTSTRAP_VARIABLE)
    declared = () if own is None else (own,)
    for servers, origin in (*explicit, variable, *declared):
        if servers:
            address = _checked(servers, origin)
            is_other = own is not None and own[0] and _joined(own[0]) != address
            return ClusterChoice(address, origin, unused=own if is_other else None)
    profile = implied_profile() if may_imply else None
    if profile is None:
        return ClusterChoice(BOOTSTRAP_DEFAULT, NOT_NAMED)
    properties = dict(profile.properties)
    servers = properties.pop(BOOTSTRAP_PROPERTY, None)
    origin = str(profile) if servers else NOT_NAMED
    address = _checked(servers or BOOTSTRAP_DEFAULT, origin)
    return ClusterChoice(address, origin, profile, properties)


def _joined(servers: BootstrapServers) -> str:
    return servers if isinstance(servers, str) else ",".join(servers)


def _checked(servers: BootstrapServers, origin: str) -> str:
    try:
        addresses_of(servers)
    except InvalidConfig as error:
        raise InvalidConfig(f"{origin}: {error}") from error
    return _joined(servers)
