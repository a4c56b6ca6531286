"""The table of handlers: the module that serves each API, by its key.

A module declares its requests in ``SERVED``, at its foot.  It is imported at its first request:
all of them together take 140 ms to import, a third of the time that a broker takes to start.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from sharegroup.broker.handler_contract import ApiHandler

HANDLERS = {
    0: "records.produce",
    1: "records.fetch",
    2: "records.offsets",
    3: "topics.metadata",
    8: "groups.offset_commit",
    9: "groups.offset_fetch",
    10: "groups.find_coordinator",
    11: "groups.classic_groups",
    12: "groups.classic_groups",
    13: "groups.classic_groups",
    14: "groups.classic_groups",
    15: "groups.groups",
    16: "groups.groups",
    17: "access.sasl",
    18: "cluster.api_versions",
    19: "topics.topics",
    20: "topics.topics",
    21: "records.delete_records",
    22: "records.producers",
    23: "records.offsets",
    24: "transactions.add_partitions_to_txn",
    25: "transactions.transactions",
    26: "transactions.transactions",
    27: "transactions.transactions",
    28: "groups.txn_offset_commit",
    29: "access.acls",
    30: "access.acls",
    31: "access.acls",
    32: "settings.configs",
    33: "settings.configs",
    34: "cluster.single_node",
    35: "topics.describe_log_dirs",
    36: "access.sasl",
    37: "topics.topics",
    42: "groups.groups",
    43: "cluster.single_node",
    44: "settings.configs",
    45: "cluster.single_node",
    46: "cluster.single_node",
    47: "groups.offset_delete",
    48: "settings.client_quotas",
    49: "settings.client_quotas",
    50: "access.users",
    51: "access.users",
    55: "cluster.single_node",
    57: "cluster.cluster",
    60: "cluster.cluster",
    61: "records.producers",
    64: "cluster.single_node",
    65: "transactions.transactions",
    66: "transactions.transactions",
    68: "groups.modern_groups",
    69: "groups.modern_groups",
    71: "cluster.telemetry",
    72: "cluster.telemetry",
    74: "settings.configs",
    75: "topics.describe_topic_partitions",
    76: "share.share_groups",
    77: "share.share_groups",
    78: "share.share_fetch",
    79: "share.share_acknowledge",
    80: "cluster.single_node",
    81: "cluster.single_node",
    83: "share.share_state",
    84: "share.share_state",
    85: "share.share_state",
    86: "share.share_state",
    87: "share.share_state",
    90: "share.share_group_offsets",
    91: "share.share_group_offsets",
    92: "share.share_group_offsets",
    94: "cluster.single_node",
}
"""By API key: the module in `broker.handlers`."""


@cache
def handler_of(api_key: int) -> ApiHandler:
    """Return the handler of an API, and import its module at the first call."""
    module = import_module(f"sharegroup.broker.handlers.{HANDLERS[api_key]}")
    handler: ApiHandler = module.SERVED[api_key]
    return handler
