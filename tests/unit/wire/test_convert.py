"""Conversion carries what both versions have and fills what only the target has."""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v0.request import (
    MetadataRequest as Request0,
    MetadataRequestTopic as Topic0,
)
from kio.schema.metadata.v0.response import (
    MetadataResponse as Response0,
    MetadataResponseBroker as Broker0,
)
from kio.schema.metadata.v9.response import MetadataResponseTopic as Topic9
from kio.schema.metadata.v13 import request as new_request, response as new_response
from kio.schema.share_fetch.v1.request import ShareFetchRequest as Fetch1
from kio.schema.share_fetch.v2.request import ShareFetchRequest as Fetch2

from sharegroup.wire.codec.apis import APIS, request_class, response_class
from sharegroup.wire.codec.convert import downgrade, upgrade
from sharegroup.wire.codec.encoder import encode
from tests.unit.wire.messages import random_message


def test_older_request_gets_defaults_for_its_missing_fields():
    old = Request0(topics=(Topic0(name="flights"),))
    assert upgrade(old, new_request.MetadataRequest) == new_request.MetadataRequest(
        topics=(new_request.MetadataRequestTopic(topic_id=None, name="flights"),),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )


def test_response_loses_the_fields_that_an_older_version_lacks():
    new = new_response.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=(new_response.MetadataResponseBroker(node_id=1, host="h", port=9, rack="r"),),
        cluster_id="c",
        controller_id=1,
        topics=(),
        error_code=ErrorCode.none,
    )
    assert downgrade(new, Response0) == Response0(
        brokers=(Broker0(node_id=1, host="h", port=9),), topics=()
    )


def test_null_becomes_the_default_where_the_target_has_no_null():
    new = new_response.MetadataResponseTopic(
        error_code=ErrorCode.unknown_topic_id, name=None, topic_id=UUID(int=1), partitions=()
    )
    assert downgrade(new, Topic9).name == ""


def test_message_of_the_right_class_is_returned_unchanged():
    message = random_message(Fetch2, random.Random(1))
    assert upgrade(message, Fetch2) is message


def test_older_share_fetch_gets_the_default_acquire_mode():
    old = random_message(Fetch1, random.Random(2))
    new = upgrade(old, Fetch2)
    assert (new.share_acquire_mode, new.is_renew_ack) == (0, False)
    assert new.member_id == old.member_id
    assert downgrade(new, Fetch1) == old


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_older_request_can_be_upgraded_and_every_response_downgraded(api):
    """The result is a message of its class, so it can be encoded."""
    dice = random.Random(api.name)
    for version in range(api.oldest, api.newest):
        for _ in range(5):
            request = random_message(request_class(api.key, version), dice)
            encode(upgrade(request, request_class(api.key, api.newest)))
            response = random_message(response_class(api.key, api.newest), dice)
            encode(downgrade(response, response_class(api.key, version)))
