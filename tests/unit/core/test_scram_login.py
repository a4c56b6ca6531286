"""SCRAM from the server's side: the RFC's own exchange, and clients that lie."""

import base64

import pytest

from sharegroup.core.security.login import LoginRefused
from sharegroup.core.security.scram import (
    ScramCredential,
    ScramLogin,
    credential_of,
    salted_password,
)
from sharegroup.protocol_enums import ScramMechanism

# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str = "pencil") -> ScramCredential:
    mechanism = ScramMechanism.SCRAM_SHA_256
    salted = salted_password(mechanism, password, salt=SALT, iterations=4096)
    return credential_of(mechanism, salted, salt=SALT, iterations=4096)


def begun(
    first: bytes = FIRST, *, known: bool = True, password: str = "pencil"
) -> tuple[ScramLogin, bytes]:
    """Return a login after the client's first message, and the challenge."""
    login = ScramLogin(ScramMechanism.SCRAM_SHA_256)
    stored = credential(password)
    return login, login.first(first, lambda _: (stored, known), nonce=SERVER_NONCE)


def test_exchange_of_the_rfc() -> None:
    login, challenge = begun()
    assert challenge == CHALLENGE
    assert login.final(FINAL) == PROOF
    assert login.user == "user"


def test_wrong_password_and_unknown_user_are_refused_with_the_same_answer() -> None:
    answers = set()
    for known, password in ((True, "other"), (False, "pencil")):
        login, _ = begun(known=known, password=password)
        with pytest.raises(LoginRefused) as refused:
            login.final(FINAL)
        answers.add(str(refused.value.for_client("SCRAM-SHA-256", again=False)))
    (answer,) = answers
    assert answer == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )


def test_escaped_names_are_those_of_the_user() -> None:
    login, _ = begun(b"n,a=a=3Db=2Cc,n=a=3Db=2Cc,r=abc")
    assert login.user == "a=b,c"


def test_another_authorization_id_is_refused() -> None:
    with pytest.raises(LoginRefused, match="authorization id"):
        begun(b"n,a=admin,n=user,r=abc")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a,bc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=" + b"u" * 1025 + b",r=abc",
    ],
)
def test_malformed_first_messages_are_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        begun(first)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"", "not that of SCRAM"),
        (FINAL.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (FINAL.replace(b"hNlF$k0", b"hNlF$k1"), "another nonce"),
        (FINAL.replace(b"r=rOpr", b"r=Opr"), "another nonce"),
        (FINAL.replace(b"p=dHz", b"p=dHy"), "wrong password"),
        (FINAL.partition(b",p=")[0] + b",p=AAAA", "wrong password"),
        (FINAL.partition(b",p=")[0], "not that of SCRAM"),
    ],
)
def test_changed_final_messages_are_refused(final: bytes, reason: str) -> None:
    login, _ = begun()
    with pytest.raises(LoginRefused, match=reason):
        login.final(final)


def test_a_delegation_token_is_an_unknown_user() -> None:
    login, challenge = begun(FIRST + b",tokenauth=true")
    assert challenge == CHALLENGE
    with pytest.raises(LoginRefused, match="unknown user"):
        login.final(FINAL)


def test_a_credential_is_printed_without_its_keys() -> None:
    assert repr(credential()) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    "present", [(credential(), False), (credential("other"), True)], ids=["deleted", "changed"]
)
def test_a_credential_that_changes_between_the_messages_is_refused(
    present: tuple[ScramCredential, bool],
) -> None:
    found = [(credential(), True)]
    login = ScramLogin(ScramMechanism.SCRAM_SHA_256)
    login.first(FIRST, lambda _: found[-1], nonce=SERVER_NONCE)
    found.append(present)
    with pytest.raises(LoginRefused, match="during the login"):
        login.final(FINAL)
