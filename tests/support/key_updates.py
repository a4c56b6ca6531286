"""Records of TLS 1.3 that make a server derive new keys, as no TLS library sends many of them.

They are encrypted with the secret of the client's side, which `ssl` writes to a file of secrets
(``SSLContext.keylog_filename``).  The cipher suite must be TLS_AES_256_GCM_SHA384.
"""

from __future__ import annotations

import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HASH, _HASH_BYTES, _KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = "sha384", 48, 32, 12, 16
_APPLICATION_DATA, _HANDSHAKE = 0x17, b"\x16"
_KEY_UPDATE = b"\x18\x00\x00\x01"


def client_secret(secrets: Path) -> bytes:
    """The first secret of the client's side, from a file of secrets with one connection."""
    lines = map(str.split, secrets.read_text().splitlines())
    return next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")


def key_updates(secret: bytes, count: int, *, wants_answer: bool) -> bytes:
    """``count`` records that are the first ones of the client after its handshake."""
    records = []
    for _ in range(count):
        content = _KEY_UPDATE + bytes([wants_answer]) + _HANDSHAKE
        header = struct.pack(">BHH", _APPLICATION_DATA, 0x0303, len(content) + _TAG_BYTES)
        key = _derived(secret, b"key", _KEY_BYTES)
        nonce = _derived(secret, b"iv", _NONCE_BYTES)
        records.append(header + AESGCM(key).encrypt(nonce, content, header))
        secret = _derived(secret, b"traffic upd", _HASH_BYTES)
    return b"".join(records)


def _derived(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, for at most one block."""
    label = b"tls13 " + label
    text = struct.pack(">HB", size, len(label)) + label + b"\x00"
    return hmac.digest(secret, text + b"\x01", _HASH)[:size]
