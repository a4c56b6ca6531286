"""``sharegroup cluster``: the brokers, the controller, the features and the requests of a cluster.

Everything is an answer of one broker. Which one that is does not matter, but for ``versions``
while a cluster is upgraded.
"""

from __future__ import annotations

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    cluster_options,
    listing_options,
    show,
)
from sharegroup.cli.common.output import Listing, Row
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import MetadataQuorum, NodeDescription
from sharegroup.errors import UnsupportedVersion

BROKER_COLUMNS = ("id", "host", "port", "rack", "state", "controller")
SPARE = ("rack", "controller")
CONTROLLER_SPARE = ("brokers", "epoch", "voters")


@click.group("cluster", cls=VerbsAsOptions)
def command() -> None:
    """Show the brokers, the controller, the features and the versions of a cluster.

    To test whether it answers, use `sharegroup ping`.
    """


@command.command("brokers")
@cluster_options
@listing_options
@leaves_out(SPARE)
def brokers(*, access: Access, form: Form) -> None:
    """List the brokers with address, rack and state.

    State fenced: the broker is registered, but not running or not yet ready.  Older brokers than
    Apache Kafka 4.0 list only running ones.
    """

    async def nodes(admin: AdminClient) -> Listing:
        try:
            cluster = await admin.describe_cluster(include_fenced=True)
        except UnsupportedVersion:
            cluster = await admin.describe_cluster()
        rows = [
            _broker_row(node, cluster.controller_id)
            for node in sorted(cluster.nodes, key=lambda node: node.node_id)
        ]
        return Listing(rows, BROKER_COLUMNS, "There are no brokers.", spare=SPARE)

    show(access, form, nodes)


def _broker_row(node: NodeDescription, controller_id: int) -> Row:
    return {
        "id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "state": "fenced" if node.is_fenced else "running",
        "controller": "yes" if node.node_id == controller_id else "no",
    }


@command.command("controller")
@cluster_options
@listing_options
@leaves_out(CONTROLLER_SPARE)
def controller(*, access: Access, form: Form) -> None:
    """Show the cluster id and the controller.

    In Apache Kafka with KRaft it is the leader of the metadata quorum, and VOTERS are the other
    controllers; reading it needs DESCRIBE on the cluster.
    """

    async def leader(admin: AdminClient) -> Listing:
        cluster = await admin.describe_cluster()
        try:
            quorum: MetadataQuorum | None = await admin.describe_metadata_quorum()
        except UnsupportedVersion:  # A sharegroup serve, or a Kafka with ZooKeeper.
            quorum = None
        row = {
            "cluster_id": cluster.cluster_id,
            "controller": quorum.leader_id if quorum else cluster.controller_id,
            "epoch": quorum.leader_epoch if quorum else None,
            "voters": [replica.node_id for replica in quorum.voters] if quorum else [],
            "brokers": len(cluster.nodes),
        }
        return Listing([row], tuple(row), "", spare=CONTROLLER_SPARE)

    show(access, form, leader)


@command.command("features")
@cluster_options
@listing_options
def features(*, access: Access, form: Form) -> None:
    """List the features with the level in effect and the levels that the broker supports.

    Share groups need share.version of 1 or more.
    """

    async def levels(admin: AdminClient) -> Listing:
        described = await admin.describe_features()
        rows = [
            {
                "feature": name,
                "level": described.finalized.get(name, 0),
                "oldest": supported.oldest,
                "newest": supported.newest,
            }
            for name, supported in sorted(described.supported.items())
        ]
        return Listing(rows, ("feature", "level", "oldest", "newest"), "There are no features.")

    show(access, form, levels)


@command.command("versions")
@cluster_options
@listing_options
def versions(*, access: Access, form: Form) -> None:
    """List the requests that a broker serves, with their oldest and newest versions."""

    async def requests(admin: AdminClient) -> Listing:
        described = await admin.describe_api_versions()
        rows = [
            {"request": name, "oldest": served.oldest, "newest": served.newest}
            for name, served in sorted(described.items())
        ]
        return Listing(rows, ("request", "oldest", "newest"), "The broker serves no requests.")

    show(access, form, requests)
