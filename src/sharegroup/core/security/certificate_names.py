"""The subject, the alternative names and the end of a certificate, read from its DER encoding.

The standard library tells the subject of a peer's certificate only by names of its own, without the
order and the types of the values.  Kafka's users are named by Java's text of the subject (RFC 2253
with Java's choices), for example ``CN=alice,OU=billing,O=Example``.  So this module reads the
fields itself.  It is meant for certificates whose signature has been verified.

    Certificate ::= SEQUENCE { TBSCertificate, algorithm, signature }
    TBSCertificate ::= SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity,
                                  subject, publicKey, ..., [3] extensions OPTIONAL }
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.errors import InvalidConfig

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; others are written as their number, with the value in hex."""

_STRINGS = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""The encoding of each type of string, by its tag."""

_ESCAPED = frozenset(',=+<>#;"\\')
_SUBJECT_ALTERNATIVE_NAME = bytes.fromhex("0603551d11")

_CONTEXT_0, _CONTEXT_3 = 0xA0, 0xA3
_VALIDITY_AT, _SUBJECT_AT = 3, 4
"""The positions of the validity and of the subject, that of the serial number being 0."""

_TIME_FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""The formats of UTCTime and GeneralizedTime, by tag (RFC 5280)."""


class Element(NamedTuple):
    """One element of a DER encoding."""

    tag: int
    content: bytes
    encoded: bytes
    """The whole element, with tag and length."""


class CertificateNames(NamedTuple):
    """The names that a certificate is for."""

    subject: str
    """As Java's ``X500Principal.getName()`` writes it."""
    alternatives: frozenset[bytes]
    """The encoded alternative names: hosts, addresses and others."""
    expires_seconds: int
    """The end of its validity, in seconds since 1970."""


def certificate_names(certificate: bytes) -> CertificateNames:
    """Return the names of a certificate in DER; raise InvalidConfig if it cannot be read."""
    try:
        [whole] = elements(certificate)
        fields = elements(elements(whole.content)[0].content)
        if fields[0].tag == _CONTEXT_0:
            fields = fields[1:]
        subject = subject_text(fields[_SUBJECT_AT].encoded)
        expires_seconds = _seconds(elements(fields[_VALIDITY_AT].content)[1])
        return CertificateNames(subject, frozenset(_alternatives(fields)), expires_seconds)
    except (ValueError, IndexError) as error:
        raise InvalidConfig(
            f"the names of a certificate of {len(certificate)} bytes cannot be read: {error}"
        ) from error


def subject_text(name: bytes) -> str:
    """Return the text of a subject in DER; the last part of the name comes first (RFC 2253)."""
    [sequence] = elements(name)
    parts = [
        "+".join(map(_attribute, elements(part.content))) for part in elements(sequence.content)
    ]
    return ",".join(reversed(parts))


def _seconds(moment: Element) -> int:
    """Return a time in seconds since 1970; UTCTime is of the years 1950 to 2049."""
    text, form = moment.content.decode("ascii"), _TIME_FORMATS.get(moment.tag, "")
    parsed = dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC)
    # In RFC 5280 the years 50 to 68 are of the last century, for Python of this one.
    if moment.tag == 0x17 and parsed.year >= 2050:
        parsed = parsed.replace(year=parsed.year - 100)
    return int(parsed.timestamp())


def _attribute(attribute: Element) -> str:
    number, value = elements(attribute.content)
    dotted = _object_identifier(number.content)
    keyword, encoding = _KEYWORDS.get(dotted), _STRINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or dotted}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _escaped(text: str) -> str:
    """Return a value with its special characters, and its spaces at both ends, escaped."""
    inner = text.strip(" \r")
    begin = len(text) - len(text.lstrip(" \r")) if inner else 0
    end = begin + len(inner)
    return "".join(
        "\\00"
        if character == "\0"
        else f"\\{character}"
        if character in _ESCAPED or not begin <= index < end
        else character
        for index, character in enumerate(text)
    )


def _alternatives(fields: list[Element]) -> Iterator[bytes]:
    for extensions in fields[_SUBJECT_AT + 1 :]:
        if extensions.tag != _CONTEXT_3:
            continue
        for extension in elements(elements(extensions.content)[0].content):
            if extension.content.startswith(_SUBJECT_ALTERNATIVE_NAME):
                # The last element, because a flag (`critical`) may stand before it.
                octets = elements(extension.content)[-1].content
                for alternative in elements(elements(octets)[0].content):
                    yield alternative.encoded


def elements(encoded: bytes) -> list[Element]:
    """Return the elements of a DER encoding; raise ValueError if it is not one."""
    parts, at = [], 0
    while at < len(encoded):
        begin = at
        tag, length, at = encoded[at], encoded[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            # Size 0 is the indefinite length of BER, which DER does not have.
            if not 0 < size <= 4:
                raise ValueError(f"a length of {size} bytes at {begin}")
            length, at = int.from_bytes(encoded[at : at + size]), at + size
        end = at + length
        if end > len(encoded):
            raise ValueError(f"an element at {begin} ends at {end}, beyond {len(encoded)}")
        parts.append(Element(tag, encoded[at:end], encoded[begin:end]))
        at = end
    return parts


def _object_identifier(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
