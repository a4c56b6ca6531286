"""A request that failed as a whole: the error, for each item that the request names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sharegroup.broker.server.handler_table import HANDLERS, handler_of
from sharegroup.errors import ClusterAuthorizationFailed
from sharegroup.steps import STEP_ELEMENTS, run_to_end
from sharegroup.wire.codec.apis import APIS, newest_request_class, response_class
from sharegroup.wire.codec.convert import empty
from sharegroup.wire.codec.encoder import encode_response_chunks
from sharegroup.wire.codec.refusals import refusal
from tests.faults.tokens import full_message

ERROR = ClusterAuthorizationFailed("not you")
CODE = ErrorCode.cluster_authorization_failed
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_GROUPS, ELECT_LEADERS, SHARE_FETCH = 19, 20, 15, 43, 78


def refused(key: int, request: Any) -> Any:
    handler, cls = handler_of(key), response_class(key, APIS[key].newest)
    instead, with_items = handler.refused, handler.refuses_items
    return run_to_end(refusal(request, cls, ERROR, instead, with_items=with_items))


@pytest.mark.parametrize("key", [key for key in HANDLERS if handler_of(key).refuse is None])
@pytest.mark.parametrize("make", [empty, full_message])
def test_every_refusal_can_be_sent_and_tells_the_error(key: int, make: Any) -> None:
    response = refused(key, make(handler_of(key).upgraded_class or newest_request_class(key)))
    assert encode_response_chunks(1, response)
    if make is full_message:
        assert CODE.name in repr(response)


def test_item_has_what_names_it_and_none_of_its_other_values() -> None:
    request = full_message(newest_request_class(CREATE_TOPICS))
    (topic,) = request.topics
    (item,) = refused(CREATE_TOPICS, request).topics
    assert (item.name, item.error_code, item.error_message) == (topic.name, CODE, "not you")
    assert (item.num_partitions, item.replication_factor, item.configs) == (-1, -1, None)


def test_items_stand_in_an_array_with_another_name() -> None:
    request = full_message(newest_request_class(DELETE_TOPICS))
    request = replace(request, topics=request.topics * (3 * STEP_ELEMENTS))
    responses = refused(DELETE_TOPICS, request).responses
    assert len(responses) == 3 * STEP_ELEMENTS
    assert {(item.name, item.topic_id, item.error_code) for item in responses} == {
        (request.topics[0].name, request.topics[0].topic_id, CODE)
    }


def test_item_of_a_plain_name() -> None:
    request = replace(empty(newest_request_class(DESCRIBE_GROUPS)), groups=("billing", "orders"))
    groups = refused(DESCRIBE_GROUPS, request).groups
    assert [(group.group_id, group.group_state) for group in groups] == [
        ("billing", "Dead"),
        ("orders", "Dead"),
    ]


def test_response_with_an_error_of_its_own_has_items_only_if_its_handler_says_so() -> None:
    fetch = full_message(newest_request_class(SHARE_FETCH))
    assert refused(SHARE_FETCH, fetch).responses == ()
    elect = full_message(newest_request_class(ELECT_LEADERS))
    (topic,) = refused(ELECT_LEADERS, elect).replica_election_results
    assert [item.partition_id for item in topic.partition_result] == [
        *elect.topic_partitions[0].partitions
    ]


def test_a_large_refusal_pauses() -> None:
    request = full_message(newest_request_class(DELETE_TOPICS))
    request = replace(request, topics=request.topics * (10 * STEP_ELEMENTS))
    steps = refusal(request, response_class(DELETE_TOPICS, 6), ERROR, {})
    assert sum(1 for _ in steps) == 10
