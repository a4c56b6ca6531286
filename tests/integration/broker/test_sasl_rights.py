"""The rights of a connection are those of the user that it is logged in as."""

from __future__ import annotations

from pathlib import Path

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8

from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from sharegroup.testing import run_broker
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import log_in, port_of, settings

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def topic_code(connection: RawConnection, topic: str) -> ErrorCode:
    wanted = MetadataRequestTopic(name=TopicName(topic), topic_id=None)
    request = MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (found,) = connection.ask(request).topics
    return ErrorCode(found.error_code)


def test_a_user_may_what_its_acls_allow_and_a_super_user_everything(tmp_path: Path) -> None:
    values = {
        **settings(tmp_path),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:alice;User:ANONYMOUS",
    }
    with run_broker(values) as running:
        running.create_topic("orders")
        running.create_topic("salaries")
        with RawConnection(port_of(running)) as alice, RawConnection(port_of(running)) as bob:
            log_in(alice)
            log_in(bob, user="bob", password="hunter2")
            refused = ErrorCode.topic_authorization_failed
            assert topic_code(alice, "orders") == ErrorCode.none
            assert topic_code(bob, "orders") == refused
            allowed = AclCreation(
                resource_type=i8(AclResourceType.TOPIC),
                resource_name="orders",
                resource_pattern_type=i8(AclPatternType.LITERAL),
                principal="User:bob",
                host="*",
                operation=i8(AclOperation.DESCRIBE),
                permission_type=i8(AclPermission.ALLOW),
            )
            (created,) = alice.ask(CreateAclsRequest(creations=(allowed,))).results
            assert created.error_code == 0
            assert topic_code(bob, "orders") == ErrorCode.none
            assert topic_code(bob, "salaries") == refused
            (mine,) = bob.ask(CreateAclsRequest(creations=(allowed,))).results
            assert mine.error_code == ErrorCode.cluster_authorization_failed
