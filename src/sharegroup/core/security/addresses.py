"""The one spelling of an IP address under which ACLs, quotas and limits know it."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_address(text: str) -> str | None:
    """Return the shortest spelling of an IP address; None if the text is no address.

    An IPv4 address in IPv6 (``::ffff:10.0.0.1``) becomes IPv4.  The zone of a link-local address
    is left out, because it is the name of an interface of this machine.

    >>> canonical_address("0:0:0:0:0:FFFF:10.0.0.1")
    '10.0.0.1'
    >>> canonical_address("FE80::1%eth0")
    'fe80::1'
    """
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
