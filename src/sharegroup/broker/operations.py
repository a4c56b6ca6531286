"""Which operations a client is told that it may do: all there are, since there are no ACLs yet.

Each is a bit, by its number in Kafka's ``AclOperation``.
"""

from __future__ import annotations

from kio.static.primitive import i32

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_ASKED = i32(-(2**31))
"""What stands in an answer to who did not ask."""


def _bits(*operations: int) -> i32:
    return i32(sum(1 << operation for operation in operations))


ON_TOPIC = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
