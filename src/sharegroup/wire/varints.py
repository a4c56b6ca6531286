"""Numbers of variable length, seven bits to a byte, as messages, records and protobuf have them."""

from __future__ import annotations

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The numbers of one byte."""


def uvarint(value: int) -> bytes:
    """Return a number of 0 or more."""
    if value <= 0x7F:
        return ONE_BYTE[value]
    if value <= 0x3FFF:
        return bytes((value & 0x7F | 0x80, value >> 7))
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def zigzag(number: int) -> bytes:
    """Return a number of up to 64 bits, which may be negative, in zigzag."""
    return uvarint((number << 1) ^ (number >> 63))
