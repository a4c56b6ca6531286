"""Subjects as Java writes them, from certificates that openssl made."""

from __future__ import annotations

import base64
import contextlib

import pytest

from sharegroup.core.security.certificate_names import certificate_names
from sharegroup.errors import InvalidConfig

# A certificate of openssl with -utf8 and -multivalue-rdn, its subject as expected below.
STRANGE = base64.b64decode(
    "MIICZDCCAgmgAwIBAgIUEcKV9gVXN/uJQ8K9tEQMgaFW7H4wCgYIKoZIzj0EAwIwgYYxCzAJBgNVBAYTAkRFMRAw"
    "DgYDVQQIDAdCYXkgZXJuMREwDwYDVQQKDAhFeCwgSW5jLjEiMAwGA1UECwwFYT1iI2MwEgYJKoZIhvcNAQkBFgV4"
    "QHkuejELMAkGA1UEBRMCMTIxITAfBgNVBAMMGCDDhGxpY2UgInEiIDx3PiA7IFwgZW5kIDAeFw0yNjExMjYyMzI5"
    "MTJaFw0yNjExMjgyMzI5MTJaMIGGMQswCQYDVQQGEwJERTEQMA4GA1UECAwHQmF5IGVybjERMA8GA1UECgwIRXgs"
    "IEluYy4xIjAMBgNVBAsMBWE9YiNjMBIGCSqGSIb3DQEJARYFeEB5LnoxCzAJBgNVBAUTAjEyMSEwHwYDVQQDDBgg"
    "w4RsaWNlICJxIiA8dz4gOyBcIGVuZCAwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASZ8kXSDmycj/21PVvyUMYb"
    "LkkuYFHfZya+cdaF0oSQSOkjFLgqOp85Qcy/woYFHkMcLoZmoklnD+O+ik5WBChao1MwUTAdBgNVHQ4EFgQU/ybL"
    "dgAFL8Kn6wX33kBoLWKVoR0wHwYDVR0jBBgwFoAU/ybLdgAFL8Kn6wX33kBoLWKVoR0wDwYDVR0TAQH/BAUwAwEB"
    "/zAKBggqhkjOPQQDAgNJADBGAiEArmoPDv4uxXL0ZMXhiTgTag0oH/tfBnn7W405IvjYocICIQDOiqISu3GEhtNp"
    "HX2BhpKpOmxTFV5wIMniDw6PL/xz/Q=="
)
EXPIRES = 1_795_908_552
"""2026-11-28 23:29:12Z, as openssl says."""


def test_subject_is_written_as_java_writes_it() -> None:
    assert certificate_names(STRANGE).subject == (
        r"CN=\ Älice \"q\" \<w\> \; \\ end\ ,2.5.4.5=#13023132,"
        r"OU=a\=b\#c+1.2.840.113549.1.9.1=#16057840792e7a,O=Ex\, Inc.,ST=Bay ern,C=DE"
    )


def test_end_of_the_validity_is_read() -> None:
    assert certificate_names(STRANGE).expires_seconds == EXPIRES


def test_certificate_without_alternative_names_has_none() -> None:
    assert certificate_names(STRANGE).alternatives == frozenset()


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x30", b"\x30\x03\x02\x01", STRANGE[:-1], STRANGE + b"\x00", b"\x30\x85" + bytes(9)],
)
def test_bytes_that_are_no_certificate_are_refused(damaged: bytes) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        certificate_names(damaged)


def test_every_cut_and_flip_of_a_certificate_is_read_or_refused() -> None:
    for at, byte in enumerate(STRANGE):
        for damaged in (STRANGE[:at], STRANGE[:at] + bytes([byte ^ 0x55]) + STRANGE[at + 1 :]):
            with contextlib.suppress(InvalidConfig):
                assert certificate_names(damaged).subject is not None
