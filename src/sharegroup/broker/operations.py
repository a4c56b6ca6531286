"""Bit fields of the operations that a client may perform: all, because the broker has no ACLs.

An operation is a bit, at the position of its number in Kafka's ``AclOperation``.
"""

from __future__ import annotations

from kio.static.primitive import i32

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_ASKED = i32(-(2**31))
"""The value of the field if the request does not ask for authorized operations."""


def _bits(*operations: int) -> i32:
    return i32(sum(1 << operation for operation in operations))


ON_TOPIC = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
