"""The requests on the wire: key, name, versions, and the class for each.

The tables are written out; a test compares them with kio's index.  Almost all classes are kio's;
`DECLARED_HERE` names the versions that it does not have, and `EXTENDED_HERE` those to which we add
tagged fields. The module of a message is imported when its version is first used. All modules
together take a second to import, and a broker that serves one kind of client needs about twenty.

Kafka's rule for headers: an API's versions from ``flexible`` on use request header 2 and response
header 1 (with tagged fields), older ones 1 and 0. The one exception is the response of ApiVersions,
which always has header 0, because the client does not know the broker's versions yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One request type; ``oldest`` and ``newest`` are the versions served, both inclusive.

    ``flexible`` is the first version with compact lengths and tagged fields.
    """

    key: int
    name: str
    oldest: int
    newest: int
    flexible: int
    advertised_from: int | None = None
    """The oldest version that ApiVersions names; None means ``oldest``."""
    between_brokers: bool = False
    """Whether only brokers send it; then it is served and advertised only on request (ADR 0010)."""

    @property
    def oldest_advertised(self) -> int:
        """The value of ``min_version`` in ApiVersions."""
        return self.oldest if self.advertised_from is None else self.advertised_from

    @property
    def snake_name(self) -> str:
        """The name as kio's packages and the broker's handlers and log lines have it."""
        return "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name
        )[1:]


# The oldest versions are those of ``validVersions`` in Kafka 4.4: Kafka 4.0 removed all before them
# (KIP-896).
APIS: dict[int, Api] = {
    api.key: api
    for api in (
        # librdkafka before 2.11.1 asks whether Produce 0 is served before it compresses with
        # gzip, snappy or lz4, and sends plain batches when it is not (KAFKA-18659). Kafka names
        # 0 to 2 without serving them; no client uses them, because clients use the newest.
        Api(0, "Produce", 3, 13, flexible=9, advertised_from=0),
        Api(1, "Fetch", 4, 18, flexible=12),
        Api(2, "ListOffsets", 1, 11, flexible=6),
        Api(3, "Metadata", 0, 13, flexible=9),
        Api(8, "OffsetCommit", 2, 10, flexible=8),
        Api(9, "OffsetFetch", 1, 10, flexible=6),
        Api(10, "FindCoordinator", 0, 6, flexible=3),
        Api(11, "JoinGroup", 0, 9, flexible=6),
        Api(12, "Heartbeat", 0, 4, flexible=4),
        Api(13, "LeaveGroup", 0, 5, flexible=4),
        Api(14, "SyncGroup", 0, 5, flexible=4),
        Api(15, "DescribeGroups", 0, 6, flexible=5),
        Api(16, "ListGroups", 0, 5, flexible=3),
        # No version is flexible (SaslHandshakeRequest.json); here that is the one above the newest.
        Api(17, "SaslHandshake", 0, 1, flexible=2),
        Api(18, "ApiVersions", 0, 5, flexible=3),
        Api(19, "CreateTopics", 2, 7, flexible=5),
        Api(20, "DeleteTopics", 1, 6, flexible=4),
        Api(21, "DeleteRecords", 0, 2, flexible=2),
        # Version 6 (two-phase commit) is unstable in Kafka 4.4, and not advertised there.
        Api(22, "InitProducerId", 0, 5, flexible=2),
        Api(23, "OffsetForLeaderEpoch", 2, 4, flexible=4),
        Api(24, "AddPartitionsToTxn", 0, 5, flexible=3),
        Api(25, "AddOffsetsToTxn", 0, 4, flexible=3),
        Api(26, "EndTxn", 0, 5, flexible=3),
        Api(27, "WriteTxnMarkers", 1, 2, flexible=1),
        Api(28, "TxnOffsetCommit", 0, 6, flexible=3),
        Api(29, "DescribeAcls", 1, 3, flexible=2),
        Api(30, "CreateAcls", 1, 3, flexible=2),
        Api(31, "DeleteAcls", 1, 3, flexible=2),
        Api(32, "DescribeConfigs", 1, 4, flexible=4),
        Api(33, "AlterConfigs", 0, 2, flexible=2),
        Api(34, "AlterReplicaLogDirs", 1, 2, flexible=2),
        Api(35, "DescribeLogDirs", 1, 5, flexible=2),
        Api(36, "SaslAuthenticate", 0, 2, flexible=2),
        Api(37, "CreatePartitions", 0, 3, flexible=2),
        Api(42, "DeleteGroups", 0, 3, flexible=2),
        Api(43, "ElectLeaders", 0, 2, flexible=2),
        Api(44, "IncrementalAlterConfigs", 0, 1, flexible=1),
        Api(45, "AlterPartitionReassignments", 0, 1, flexible=0),
        Api(46, "ListPartitionReassignments", 0, 0, flexible=0),
        # Flexible in no version, like SaslHandshake.
        Api(47, "OffsetDelete", 0, 0, flexible=1),
        Api(48, "DescribeClientQuotas", 0, 1, flexible=1),
        Api(49, "AlterClientQuotas", 0, 1, flexible=1),
        Api(50, "DescribeUserScramCredentials", 0, 0, flexible=0),
        Api(51, "AlterUserScramCredentials", 0, 0, flexible=0),
        Api(55, "DescribeQuorum", 0, 2, flexible=0),
        Api(57, "UpdateFeatures", 0, 2, flexible=0),
        Api(60, "DescribeCluster", 0, 2, flexible=0),
        Api(61, "DescribeProducers", 0, 0, flexible=0),
        Api(64, "UnregisterBroker", 0, 0, flexible=0),
        Api(65, "DescribeTransactions", 0, 0, flexible=0),
        Api(66, "ListTransactions", 0, 2, flexible=0),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, flexible=0),
        Api(69, "ConsumerGroupDescribe", 0, 1, flexible=0),
        Api(71, "GetTelemetrySubscriptions", 0, 0, flexible=0),
        Api(72, "PushTelemetry", 0, 0, flexible=0),
        Api(74, "ListConfigResources", 0, 1, flexible=0),
        Api(75, "DescribeTopicPartitions", 0, 0, flexible=0),
        # Version 0 was the early access of KIP-932 in Kafka 4.0; Kafka 4.1 removed it
        # (ShareFetchRequest.json).
        Api(76, "ShareGroupHeartbeat", 1, 1, flexible=1),
        Api(77, "ShareGroupDescribe", 1, 1, flexible=1),
        Api(78, "ShareFetch", 1, 2, flexible=1),
        Api(79, "ShareAcknowledge", 1, 2, flexible=1),
        Api(80, "AddRaftVoter", 0, 1, flexible=0),
        Api(81, "RemoveRaftVoter", 0, 0, flexible=0),
        Api(83, "InitializeShareGroupState", 0, 0, flexible=0, between_brokers=True),
        Api(84, "ReadShareGroupState", 0, 0, flexible=0, between_brokers=True),
        Api(85, "WriteShareGroupState", 0, 1, flexible=0, between_brokers=True),
        Api(86, "DeleteShareGroupState", 0, 0, flexible=0, between_brokers=True),
        Api(87, "ReadShareGroupStateSummary", 0, 1, flexible=0, between_brokers=True),
        Api(90, "DescribeShareGroupOffsets", 0, 1, flexible=0),
        Api(91, "AlterShareGroupOffsets", 0, 0, flexible=0),
        Api(92, "DeleteShareGroupOffsets", 0, 0, flexible=0),
        Api(94, "UnregisterController", 0, 0, flexible=0),
    )
}

"""The APIs that the broker serves."""

PEER_APIS: dict[int, Api] = {
    api.key: api
    for api in (
        # For an administrator: before version 8 a request had one group, and from version 10 on
        # topics have ids, which an administrator does not have.
        Api(8, "OffsetCommit", 8, 9, flexible=8),
        Api(9, "OffsetFetch", 8, 9, flexible=6),
        # Versions from 4 on are sent by brokers, for several producers at once.
        Api(24, "AddPartitionsToTxn", 0, 3, flexible=3),
        # From version 6 on topics have ids, which a producer does not have.
        Api(28, "TxnOffsetCommit", 0, 5, flexible=3),
    )
}
"""APIs of Apache Kafka that only the client uses, or in fewer versions than are served."""

DECLARED_HERE = frozenset({(18, 5), (28, 6), (42, 3), (94, 0)})
"""The versions, by API key, that kio does not have; `wire.messages` declares them."""

EXTENDED_HERE = frozenset({(78, 2), (79, 2), (90, 1)})
"""The versions, by API key, to which `wire.messages` adds tagged fields of our own."""


def api_of(key: int) -> Api:
    """Return an API of either table; KeyError if it is in neither."""
    return APIS.get(key) or PEER_APIS[key]


def spoken_api(key: int) -> Api:
    """Return an API in the versions that the client uses."""
    return PEER_APIS.get(key) or APIS[key]


@cache
def request_class(key: int, version: int) -> type[Any]:
    """Return the dataclass for this request; (key, version) must be in the table."""
    return _message_class(key, version, "Request")


@cache
def response_class(key: int, version: int) -> type[Any]:
    """Return the dataclass for this response; (key, version) must be in the table."""
    return _message_class(key, version, "Response")


def newest_request_class(key: int) -> type[Any]:
    """Return the request class that handlers are written for."""
    return request_class(key, APIS[key].newest)


def is_flexible(key: int, version: int) -> bool:
    """Return whether this version has compact lengths, tagged fields and request header 2."""
    return version >= api_of(key).flexible


@cache
def response_header_version(key: int, version: int) -> int:
    """Return 1 if the response header has tagged fields, otherwise 0 (always for ApiVersions)."""
    return 1 if is_flexible(key, version) and key != API_VERSIONS else 0


@cache
def response_module(key: int, version: int) -> Any:
    """Return the module with a response's class and those of its parts."""
    return _message_module(key, version, "Response")


def _message_class(key: int, version: int, direction: str) -> type[Any]:
    module = _message_module(key, version, direction)
    return cast("type[Any]", getattr(module, api_of(key).name + direction))


def _message_module(key: int, version: int, direction: str) -> Any:
    return import_module(message_module_name(key, version, direction))


def message_module_name(key: int, version: int, direction: str) -> str:
    """Return the name of the module with a message; ``direction`` is Request or Response."""
    api = api_of(key)
    assert api.oldest <= version <= api.newest, f"{api.name} version {version} is not in the tables"
    if (key, version) in DECLARED_HERE or (key, version) in EXTENDED_HERE:
        return f"sharegroup.wire.messages.{api.snake_name}_v{version}"
    return f"kio.schema.{api.snake_name}.v{version}.{direction.lower()}"
