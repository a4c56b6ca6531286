"""What a refusal says: what it is about, once."""

from types import SimpleNamespace

import pytest

from sharegroup.client.net.refusals import answer_about, refused
from sharegroup.errors import (
    AuthorizationException,
    GroupIdNotFound,
    TopicAlreadyExists,
    UnknownErrorCode,
    UnknownServerError,
)


@pytest.mark.parametrize(
    "text",
    [
        "topic 'a' exists already",
        "Topic 'a' already exists.",  # As Apache Kafka says it.
        "there is no topic 'a'",
    ],
)
def test_subject_named_by_the_broker_is_not_repeated(text: str) -> None:
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
def test_subject_missing_from_the_brokers_message_is_put_in_front(
    text: str | None, said: str
) -> None:
    assert str(refused(GroupIdNotFound.code, text, topic="a", partition=3)) == said


@pytest.mark.parametrize(
    ("code", "about", "name"),
    [
        (29, {"topic": "a", "partition": 3}, "a"),
        (30, {"group": "g"}, "g"),
        (53, {"transactional_id": "x"}, "x"),
        (31, {"request": "list"}, None),
        (29, {"group": "g"}, None),  # One of the group's topics; no broker says which.
    ],
)
def test_authorization_errors_have_a_base_class_and_the_name_of_the_resource(
    code: int, about: dict[str, str | int], name: str | None
) -> None:
    error = refused(code, None, **about)  # type: ignore[arg-type]
    assert isinstance(error, AuthorizationException)
    assert error.resource_name == name


def test_an_unknown_code_is_named_too() -> None:
    error = refused(9_999, "no idea", group="g")
    assert type(error) is UnknownErrorCode
    assert str(error) == "error code 9999: group 'g': no idea"
    assert str(refused(9_999, None, group="g")) == "error code 9999: group 'g': refused"


@pytest.mark.parametrize(
    ("code", "about", "right"),
    [
        (29, {"topic": "a", "partition": 3}, " (User:ann needs WRITE on topic 'a')"),
        (30, {"group": "g"}, " (User:ann needs WRITE on group 'g')"),
        (29, {"group": "g"}, " (User:ann needs WRITE on each topic of group 'g')"),
        (31, {"request": "InitProducerId"}, " (User:ann needs WRITE on the cluster)"),
        (3, {"topic": "a"}, "there is no such topic or partition here"),
    ],
)
def test_missing_right_is_named_with_the_user(
    code: int, about: dict[str, str | int], right: str
) -> None:
    error = refused(code, None, operation="WRITE", principal="User:ann", **about)
    assert str(error).endswith(right)
    assert all(repr(name) in str(error) for name in about.values())


def test_unnamed_user_is_called_the_user() -> None:
    error = refused(29, "Topic authorization failed.", operation="READ", topic="a")
    assert str(error) == "Topic authorization failed. (the user needs READ on topic 'a')"


def test_answer_about_another_group_is_none_about_this_one() -> None:
    groups = [SimpleNamespace(group_id=name) for name in ("other", "g")]
    assert answer_about("g", groups) is groups[1]
    for wrong in ([], groups[:1]):
        with pytest.raises(UnknownServerError, match="group 'g'"):
            answer_about("g", wrong)
