"""``sharegroup ping``: whether a cluster answers, as an exit code."""

from __future__ import annotations

import time

import click

from sharegroup.cli.common.cluster_access import Access, ask, cluster_options, json_option
from sharegroup.cli.common.output import counted, done
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ClusterDescription


@click.command("ping")
@cluster_options
@json_option
def command(*, access: Access, as_json: bool) -> None:
    """Test whether a broker answers; with credentials, also whether it accepts them.

    It needs no rights.  Exit code 0: a broker has answered.  1: none within --timeout, or it
    refused the login; standard error says why.  2: wrong usage.

    \b
        until sharegroup ping --timeout 1000; do sleep 1; done
    """
    began = time.monotonic()

    async def describe(admin: AdminClient) -> ClusterDescription:
        return await admin.describe_cluster()

    cluster = ask(access, describe)
    elapsed_ms = round((time.monotonic() - began) * 1000)
    text = (
        f"{access.bootstrap_servers} answers: cluster {cluster.cluster_id} with "
        f"{counted(len(cluster.nodes), 'broker')}, {elapsed_ms} ms"
    )
    facts = {"cluster_id": cluster.cluster_id, "brokers": len(cluster.nodes)}
    done(text, as_json=as_json, **facts, elapsed_ms=elapsed_ms)
