"""``kill -9`` of a broker, several times, while ACLs are created and deleted.

After each start the ACLs must be those of the answered requests.  A request without an answer may
have been carried out: whole, in part or not at all.  That ACLs decide only when they are durable
is the order of `Topics.alter_acls`; here they must have survived when the answer was sent.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_acls.v3.request import DescribeAclsRequest

from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from tests.faults.raw_connection import RawConnection
from tests.support.processes import ServeProcess

TOPIC, LITERAL, PREFIXED, READ, ALLOW, ANY = 2, 3, 4, 3, 3, 1
LIVES = 8
NAMES = [f"topic-{number}" for number in range(300)]
SECURED = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}


def described(connection: RawConnection) -> set[str]:
    """The names of the resources that have ACLs."""
    answer = connection.ask(
        DescribeAclsRequest(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
    )
    assert answer.error_code == 0, answer.error_message
    return {resource.resource_name for resource in answer.resources}


def create(connection: RawConnection, names: set[str]) -> None:
    creations = tuple(
        AclCreation(
            resource_type=TOPIC,
            resource_name=name,
            resource_pattern_type=PREFIXED,
            principal="User:alice",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        for name in sorted(names)
    )
    answer = connection.ask(CreateAclsRequest(creations=creations))
    assert {result.error_code for result in answer.results} == {0}


def delete(connection: RawConnection, names: set[str]) -> None:
    filters = tuple(
        DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=name,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        for name in sorted(names)
    )
    answer = connection.ask(DeleteAclsRequest(filters=filters))
    assert {result.error_code for result in answer.filter_results} == {0}


def change_until_killed(
    broker: ServeProcess, existing: set[str], random_: random.Random
) -> set[str]:
    """Create and delete ACLs until the broker is dead; return the names of the last request.

    ``existing`` follows the answers.
    """
    killer = threading.Timer(random_.uniform(0.05, 0.6), broker.kill9)
    killer.start()
    names: set[str] = set()
    try:
        with RawConnection(broker.port) as connection:
            while True:
                names = set(random_.sample(NAMES, random_.choice([1, 5, 100])))
                if random_.random() < 0.5:
                    create(connection, names)
                    existing |= names
                else:
                    delete(connection, names)
                    existing -= names
    except (OSError, ConnectionError):
        return names
    finally:
        killer.join()


@pytest.mark.slow
def test_acls_that_were_answered_survive_kill_9(tmp_path: Path) -> None:
    random_ = random.Random(18)
    broker = ServeProcess(tmp_path / "data", settings=SECURED)
    existing: set[str] = set()
    unanswered: set[str] = set()
    for _ in range(LIVES):
        broker.start()
        with RawConnection(broker.port) as connection:
            found = described(connection)
        assert existing - unanswered <= found <= existing | unanswered
        existing = found
        unanswered = change_until_killed(broker, existing, random_)
    with broker:
        with RawConnection(broker.port) as connection:
            found = described(connection)
        assert existing - unanswered <= found <= existing | unanswered
