"""ssl.principal.mapping.rules; the expected names are those of Kafka's SslPrincipalMapper."""

from __future__ import annotations

import time

import pytest

from sharegroup.core.security.principal_rules import SUBJECT_CHARACTERS_MAX, PrincipalRules
from sharegroup.errors import InvalidConfig

OF_KAFKA = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=alice,O=Example", "CN=alice,O=Example"),
        ("DEFAULT,", "CN=z", "CN=z"),
        (" DEFAULT , RULE:x/y/ ", "CN=z", "CN=z"),
        (OF_KAFKA, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (OF_KAFKA, "CN=duke,OU=JavaSoft,O=Sun,L=x,ST=y,C=US", "duke@javasoft"),
        (OF_KAFKA, "OU=JavaSoft,CN=DUKE,O=Sun", "duke"),
        (OF_KAFKA, "OU=JavaSoft", "OU=JavaSoft"),
        ("RULE:.*/Dummy/", "CN=x", "DummyDummy"),
        ("RULE:^CN=(.*?)$/$1$2$12/U", "CN=ab", "AB$2AB2"),
        (r"RULE:CN=.*/\$1/,DEFAULT", "CN=q", "$1"),
        ("RULE:CN=(a)?b/[$1]/", "CN=b", "[]"),
        ("RULE:^CN=([^,]*)(,.*)?$/$1/L", "CN=Alice,O=X", "alice"),
        ("RULE:^CN=(?<user>[^,]*).*$/${user}/", "CN=Alice,O=X", "Alice"),
        (r"RULE:^CN=([^,]*).*$/a\/b$1/", "CN=q", "a/bq"),
    ],
)
def test_subject_becomes_the_name_that_kafka_gives_it(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == name


def test_subject_that_no_rule_matches_has_no_user() -> None:
    assert PrincipalRules("RULE:^CN=(a.*)$/$1/").name_of("CN=bob") is None


def test_pattern_must_match_the_whole_subject() -> None:
    assert PrincipalRules("RULE:CN=a/a/").name_of("CN=alice") is None


def test_overlong_subject_has_no_user() -> None:
    rules = PrincipalRules("DEFAULT")
    assert rules.name_of("x" * SUBJECT_CHARACTERS_MAX) is not None
    assert rules.name_of("x" * (SUBJECT_CHARACTERS_MAX + 1)) is None


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "must have 1 to 100 rules"),
        ("RULE:x/y/LU", "must have rules like"),
        ("RULE:x/y", "must have rules like"),
        ("SOMETHING", "not 'SOMETHING'"),
        ("RULE:CN=(a/y/", "the pattern 'CN=\\(a'"),
        ("DEFAULT," * 101, "not 101"),
    ],
)
def test_invalid_rules_are_refused(rules: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a*b)*", "((a+)b){2,}", r"(\w+ ?)+", "([a]b*)+", "((a|aa))*c", "(x((a|aa)))+"],
)
def test_pattern_that_may_take_exponential_time_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="exponential time"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"(a\+)+", "([+*]b)+", "(ab)+", "(a+){2}b", "([]*+]x)*"])
def test_repeated_group_without_a_repetition_in_it_is_accepted(pattern: str) -> None:
    PrincipalRules(f"RULE:{pattern}/x/")


def test_longest_subject_that_almost_matches_takes_little_time() -> None:
    subject = ("CN=a,OU=b,O=c,L=d,ST=e," * 30)[:SUBJECT_CHARACTERS_MAX]
    begin = time.perf_counter()
    assert PrincipalRules(OF_KAFKA).name_of(subject) is not None
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("^.*a.*a.*a.*a.*a.*b$", "a" * SUBJECT_CHARACTERS_MAX),
        (
            "^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$",
            ("CN=" + ",OU=,O=,L=,ST=" * 99)[:SUBJECT_CHARACTERS_MAX],
        ),
        ("(.*?)A(.*?)B(.*?)C(.*?)D", "ABCD" + "A" * 170 + "B" * 170 + "D"),
        (r"\w*\w*\w*\w*\w*\w*-", "a" * SUBJECT_CHARACTERS_MAX),
        ("([^,]*),([^,]*a[^,]*a[^,]*a[^,]*a),(.*)b", "," + "a" * 500 + ",c"),
    ],
)
def test_several_repetitions_take_no_long_time(pattern: str, subject: str) -> None:
    rules = PrincipalRules(f"RULE:{pattern}/$1/")
    assert len(subject) <= SUBJECT_CHARACTERS_MAX
    began = time.process_time()
    rules.name_of(subject)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "pattern",
    ["(.*a.*b.*c.*d|.*)", ".*a.*b.*c|.*", "(?=.*a.*b.*c)x", r"(.*)a(.*)b(.*)\1", "(a|aa)+x|y"],
)
def test_several_repetitions_that_only_re_can_find_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match=r"repetitions beside|exponential"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("RULE:a/b/", "a", "b"),
        ("RULE:(.*?)A/<$1>/", "xAyA", "<x><y>"),
        ("RULE:^CN=(.*?),OU=(eng|ops),O=(.*?),C=(.*?)$/$1/", "CN=a,OU=ops,O=b,C=c", "a"),
        ("RULE:^(?:CN|UID)=(.*)$/$1/", "UID=q", "q"),
        (r"RULE:(.*)-\1/$1/", "ab-ab", "ab"),
        ("RULE:b*/-/", "bb", "--"),
    ],
)
def test_replacements_are_those_of_java(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == name
