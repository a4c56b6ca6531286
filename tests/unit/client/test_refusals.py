"""What a refusal says: what it is about, once."""

import pytest

from sharegroup.client.refusals import refused
from sharegroup.errors import GroupIdNotFound, TopicAlreadyExists, UnknownErrorCode


@pytest.mark.parametrize(
    "text",
    [
        "topic 'a' exists already",
        "Topic 'a' already exists.",  # As Apache Kafka says it.
        "there is no topic 'a'; create it first",
    ],
)
def test_what_the_broker_names_is_not_said_again(text: str) -> None:
    error = refused(TopicAlreadyExists.code, text, topic="a")
    assert type(error) is TopicAlreadyExists
    assert str(error) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "topic 'a' partition 3: there is no such group of this type"),
        ("", "topic 'a' partition 3: there is no such group of this type"),
        ("is full", "topic 'a' partition 3: is full"),
        ("topic 'a' is full", "topic 'a' partition 3: topic 'a' is full"),
        ("topic 'ab' partition 3 is full", "topic 'a' partition 3: topic 'ab' partition 3 is full"),
        ("topic 'a' partition 3 is full", "topic 'a' partition 3 is full"),
    ],
)
def test_what_the_broker_leaves_out_is_put_in_front(text: str | None, said: str) -> None:
    assert str(refused(GroupIdNotFound.code, text, topic="a", partition=3)) == said


def test_an_unknown_code_is_named_too() -> None:
    error = refused(9_999, "no idea", group="g")
    assert type(error) is UnknownErrorCode
    assert str(error) == "error code 9999: group 'g': no idea"
    assert str(refused(9_999, None, group="g")) == "error code 9999: group 'g': refused"
