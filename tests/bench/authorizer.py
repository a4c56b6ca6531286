"""What an authorizer costs: the same workloads without one and with a thousand ACLs, in turn.

    python -m tests.bench.authorizer [--only NAME] [--rounds N] [--durability fsync|os]

The client has rights by ACLs, it is not a super user.  Each pair of measurements gives a ratio,
above 1 if the broker with ACLs is better; their median should be at least 0.95.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.client import AclBinding, AclOperation, AclPatternType, AclResourceType, sync
from tests.bench.paired import FOLDER, NAMES, Built, Pairs, broker_cpu, ratios, run_pairs
from tests.bench.peers.lines import Scale
from tests.bench.peers.workloads import WORKLOADS

ACLS = 1_000
RATIO_MIN = 0.95
CLIENT = "User:ANONYMOUS"
# The first ACLs are created while none applies to the cluster.
SECURED = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
}
TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)


def acls() -> list[AclBinding]:
    """A thousand ACLs: those of the client, and others with names and prefixes of many lengths."""
    ours = [AclBinding(type_, "*", CLIENT, AclOperation.ALL) for type_ in TYPES]
    ours.append(AclBinding(AclResourceType.CLUSTER, "kafka-cluster", CLIENT, AclOperation.ALL))
    others = [
        AclBinding(
            TYPES[number % 2],
            f"team-{number}-" + "x" * (number % 40),
            f"User:u{number % 200}",
            AclOperation.READ,
            pattern_type=AclPatternType.PREFIXED if number % 3 else AclPatternType.LITERAL,
        )
        for number in range(ACLS - len(ours))
    ]
    return others + ours


def grant(peer: Built) -> None:
    """Create the ACLs of a broker."""
    with (
        peer.awake() as broker,
        sync.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        errors = [error for error in admin.create_acls(acls()).values() if error is not None]
        assert not errors, errors[0]
        assert len(admin.describe_acls()) == ACLS


@click.command()
@click.option("--only", multiple=True, type=click.Choice(NAMES), default=("P1", "P10"))
@click.option("--rounds", type=click.IntRange(2), default=6, show_default=True)
@click.option("--durability", type=click.Choice(["fsync", "os"]), default="os")
@click.option("--quick", is_flag=True, help="Small logs.")
@click.option("--records", type=click.IntRange(1), help="In the main log; others have a fraction.")
def main(
    *, only: tuple[str, ...], rounds: int, durability: str, quick: bool, records: int | None
) -> None:
    """Compare a broker without an authorizer with one that has a thousand ACLs."""
    scale = Scale.quick() if quick else Scale()
    scale = replace(scale, records=records or scale.records)
    data, source = FOLDER / "authorizer", Path("src").resolve()
    shutil.rmtree(data, ignore_errors=True)
    slow = False
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        peers = [
            Built(name, source, folder=data, durability=durability, settings=settings)
            for name, settings in (("off", {}), ("on", SECURED))
        ]
        for peer in peers:
            stack.callback(peer.end)
        grant(peers[1])
        for workload in WORKLOADS:
            if workload.name in only:
                measured = run_pairs(workload, peers, scale, rounds)
                for line, pairs in zip(workload.lines, measured, strict=True):
                    if pairs:
                        slow |= _say(line.what, ratios(line, pairs), pairs, line.unit)
    sys.exit(1 if slow else 0)


def _say(what: str, found: list[float], pairs: Pairs, unit: str) -> bool:
    """Print one line; return whether the authorizer costs more than it may."""
    is_slow = median(found) < RATIO_MIN
    off, on = (median(pair[side].value for pair in pairs) for side in (0, 1))
    click.echo(
        f"{'SLOW' if is_slow else 'ok  '} {median(found):5.3f}  [{found[0]:.2f}, {found[-1]:.2f}]"
        f"  {off:,.4g} -> {on:,.4g} {unit}  {broker_cpu(pairs)}{what}"
    )
    return is_slow


if __name__ == "__main__":
    main()
