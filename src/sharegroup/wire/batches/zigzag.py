"""Numbers of variable length as records have them, seven bits to a byte, to be written."""

from __future__ import annotations


def zigzag(number: int) -> bytes:
    """Return a number of up to 64 bits in zigzag, seven bits to a byte."""
    return plain_number((number << 1) ^ (number >> 63))


def plain_number(number: int) -> bytes:
    """Return a number of 0 or more, seven bits to a byte."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)
