"""SCRAM from the client's side: the RFC's own exchange, and servers that lie."""

import hashlib

import pytest

from sharegroup.client.net.sasl import ITERATIONS_MAX, ScramExchange
from sharegroup.errors import SaslAuthenticationFailed

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(username: str = "user", mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    return ScramExchange(mechanism, username, "pencil", nonce=NONCE)


def test_exchange_of_the_rfc() -> None:
    login = exchange()
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert login.final(SERVER_FIRST) == CLIENT_FINAL
    login.verify(SERVER_FINAL)


def test_sha_512_gives_a_proof_of_64_bytes() -> None:
    final = exchange(mechanism="SCRAM-SHA-512").final(SERVER_FIRST)
    assert len(final.partition(b",p=")[2]) == 88  # 64 bytes as base64.


def test_separators_in_the_user_name_are_escaped() -> None:
    assert exchange("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


def test_wrong_server_signature_is_refused() -> None:
    login = exchange()
    login.final(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match="signature is wrong"):
        login.verify(b"v=" + b"A" * 43 + b"=")


def test_error_of_the_server_is_in_the_message() -> None:
    login = exchange()
    login.final(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match="the server answered 'e=invalid-proof'"):
        login.verify(b"e=invalid-proof")


@pytest.mark.parametrize("iterations", ["4095", "1000001", "2147483648", "-1", "0", "", "4096.0"])
def test_iterations_outside_of_the_bounds_are_not_computed(
    iterations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(hashlib, "pbkdf2_hmac")
    challenge = SERVER_FIRST.replace(b"4096", iterations.encode())
    with pytest.raises(SaslAuthenticationFailed, match="expected 4096 to 1000000"):
        exchange().final(challenge)


def test_a_million_digits_of_iterations_are_refused_at_once() -> None:
    challenge = SERVER_FIRST.replace(b"4096", b"9" * 1_000_000)
    with pytest.raises(SaslAuthenticationFailed, match=r"9{20}.* \(1000000 bytes\) iterations"):
        exchange().final(challenge)
    assert ITERATIONS_MAX == 1_000_000


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "expected r=...,s=...,i=... from the server, got ''"),
        (b"\xff\xfe", "expected r=..."),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096,s=AAAA", "expected r=..."),
        (b"m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096", "expected r=..."),
        (b"r=somebody,s=AAAA,i=4096", "does not continue the client's"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", "does not continue the client's"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=*,i=4096", "expected base64 from the server, got '*'"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "expected base64 from the server, got ''"),
    ],
)
def test_malformed_challenge_is_named(challenge: bytes, message: str) -> None:
    with pytest.raises(SaslAuthenticationFailed) as raised:
        exchange().final(challenge)
    assert message in str(raised.value)


def test_no_error_holds_the_password() -> None:
    for challenge in (b"", b"r=x,s=AAAA,i=4096", SERVER_FIRST.replace(b"4096", b"1")):
        with pytest.raises(SaslAuthenticationFailed) as raised:
            exchange().final(challenge)
        assert "pencil" not in str(raised.value)
