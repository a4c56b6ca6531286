"""The probes of requests about the cluster: settings, ACLs, nodes and features."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sharegroup.protocol_enums import AclOperation, AclResourceType
from tests.authorization.data_probes import bits
from tests.authorization.messages import message
from tests.authorization.probe import CLUSTER_FAILED, Names, Probe, errors, need

SECOND = timedelta(seconds=1)
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
OF_TOPIC, OF_BROKER, OF_LOGGER, OF_CLIENT_METRICS, OF_GROUP = 2, 4, 8, 16, 32
SOME_ID = UUID(int=(7 << 64) + 7)
INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC = 40, 42, 3
RESOURCE_NOT_FOUND = 91
BROKER_ID_NOT_REGISTERED, CONTROLLER_ID_NOT_REGISTERED = 102, 136


NOBODY = {"entity_type": "user", "match_type": 0, "match": "nobody"}
"""A component of a filter that no quota matches."""


def _acl_filter(**more: Any) -> dict[str, Any]:
    """Return a filter that no ACL matches."""
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "no such topic",
        "pattern_type_filter": 3,
        "principal_filter": "User:nobody",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


def _create_acl(_: Names) -> Any:
    """Return a CreateAcls whose ACL is invalid, because it has no principal."""
    creation = {
        "resource_type": 2,
        "resource_name": "probe",
        "resource_pattern_type": 3,
        "principal": "nobody",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return message(30, creations=[creation])


def _describe_configs(resource_type: int, name: str) -> Any:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    return message(32, resources=[resource])


def _alter_configs(resource_type: int, name: str, key: str, value: str) -> Any:
    configs = [{"name": key, "value": value}]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return message(33, resources=[resource], validate_only=True)


def _incremental(resource_type: int, name: str, key: str, value: str) -> Any:
    configs = [{"name": key, "config_operation": 0, "value": value}]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return message(44, resources=[resource], validate_only=True)


SETTINGS = (
    Probe(
        "DescribeConfigs: of a topic",
        lambda names: _describe_configs(OF_TOPIC, names.topic),
        (need(DESCRIBE_CONFIGS, TOPIC),),
    ),
    Probe(
        "DescribeConfigs: of a group",
        lambda names: _describe_configs(OF_GROUP, names.group),
        (need(DESCRIBE_CONFIGS, GROUP),),
    ),
    *(
        Probe(
            f"DescribeConfigs: of {title}",
            lambda _, resource=(resource_type, name): _describe_configs(*resource),
            (need(DESCRIBE_CONFIGS, CLUSTER),),
        )
        for title, resource_type, name in (
            ("a broker", OF_BROKER, "1"),
            ("a broker's loggers", OF_LOGGER, "1"),
            ("client metrics", OF_CLIENT_METRICS, "probe"),
        )
    ),
    *(
        Probe(
            f"{api}: of {title}",
            lambda names, change=(change, kind, attribute, setting): change[0](
                change[1], getattr(names, change[2], change[2]), *change[3]
            ),
            (need(ALTER_CONFIGS, resource_type),),
        )
        for api, change in (
            ("AlterConfigs", _alter_configs),
            ("IncrementalAlterConfigs", _incremental),
        )
        for title, resource_type, kind, attribute, setting in (
            ("a topic", TOPIC, OF_TOPIC, "topic", ("retention.ms", "60000")),
            ("a group", GROUP, OF_GROUP, "group", ("share.session.timeout.ms", "45000")),
            ("a broker", CLUSTER, OF_BROKER, "1", ("log.cleaner.threads", "1")),
            ("client metrics", CLUSTER, OF_CLIENT_METRICS, "probe", ("interval.ms", "1000")),
        )
    ),
    Probe(
        "IncrementalAlterConfigs: of a broker's loggers",
        lambda _: _incremental(OF_LOGGER, "1", "root", "INFO"),
        (need(ALTER_CONFIGS, CLUSTER),),
        ours=errors(INVALID_CONFIG),
    ),
    Probe(
        "ListConfigResources",
        lambda _: message(74),
        (need(DESCRIBE_CONFIGS, CLUSTER),),
    ),
)

ACLS = (
    Probe("DescribeAcls", lambda _: message(29, **_acl_filter()), (need(DESCRIBE, CLUSTER),)),
    Probe("CreateAcls", _create_acl, (need(ALTER, CLUSTER),), errors(INVALID_REQUEST)),
    Probe("DeleteAcls", lambda _: message(31, filters=[_acl_filter()]), (need(ALTER, CLUSTER),)),
)

QUOTAS = (
    Probe(
        "DescribeClientQuotas",
        lambda _: message(48, components=[NOBODY]),
        (need(DESCRIBE_CONFIGS, CLUSTER),),
    ),
    Probe(
        "AlterClientQuotas",
        lambda _: message(
            49,
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            validate_only=True,
        ),
        (need(ALTER_CONFIGS, CLUSTER),),
    ),
)

CREDENTIALS = (
    Probe(
        "DescribeUserScramCredentials",
        lambda _: message(50, users=[{"name": "nobody"}]),
        (need(DESCRIBE, CLUSTER),),
        errors(RESOURCE_NOT_FOUND),
    ),
    Probe(
        "AlterUserScramCredentials",
        lambda _: message(51, deletions=[{"name": "nobody", "mechanism": 1}]),
        (need(ALTER, CLUSTER),),
        errors(RESOURCE_NOT_FOUND),
    ),
)

NODES = (
    Probe(
        "AlterReplicaLogDirs",
        lambda names: message(
            34, dirs=[{"path": "/nowhere", "topics": [{"name": names.topic, "partitions": [0]}]}]
        ),
        (need(ALTER, CLUSTER),),
        errors(57),
    ),
    Probe(
        "DescribeLogDirs",
        lambda names: message(35, topics=[{"topic": names.topic, "partitions": [0]}]),
        (need(DESCRIBE, CLUSTER, hides=("topic",), refused=errors(CLUSTER_FAILED)),),
    ),
    Probe(
        "ElectLeaders",
        lambda names: message(
            43,
            election_type=0,
            topic_partitions=[{"topic": names.topic, "partitions": [0]}],
            timeout=SECOND,
        ),
        (need(ALTER, CLUSTER),),
        errors(84),
    ),
    Probe(
        "AlterPartitionReassignments",
        lambda names: message(
            45,
            timeout=SECOND,
            topics=[
                {
                    "name": names.absent,
                    "partitions": [{"partition_index": 0, "replicas": [1]}],
                }
            ],
        ),
        (need(ALTER, CLUSTER),),
        errors(UNKNOWN_TOPIC),
    ),
    Probe(
        "ListPartitionReassignments",
        lambda _: message(46, timeout=SECOND, topics=None),
        (need(DESCRIBE, CLUSTER),),
    ),
    Probe(
        "DescribeQuorum",
        lambda _: message(
            55,
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        ),
        (need(DESCRIBE, CLUSTER),),
    ),
    Probe(
        "UpdateFeatures",
        lambda _: message(
            57,
            timeout=SECOND,
            feature_updates=[
                {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
            ],
            validate_only=True,
        ),
        (need(ALTER, CLUSTER),),
        errors(95),
    ),
    Probe(
        "DescribeCluster",
        lambda _: message(60, include_cluster_authorized_operations=True, endpoint_type=1),
        (
            need(DESCRIBE, CLUSTER, refused=errors(), operations=[0]),
            need(DESCRIBE_CONFIGS, CLUSTER, refused=errors(), operations=[bits(DESCRIBE)]),
        ),
        operations=frozenset({bits(DESCRIBE, DESCRIBE_CONFIGS)}),
    ),
    Probe(
        "UnregisterBroker",
        lambda _: message(64, broker_id=77),
        (need(ALTER, CLUSTER),),
        errors(BROKER_ID_NOT_REGISTERED),
    ),
    Probe(
        "UnregisterController",
        lambda _: message(94, controller_id=77),
        (need(ALTER, CLUSTER),),
        errors(CONTROLLER_ID_NOT_REGISTERED),
    ),
    Probe(
        "AddRaftVoter",
        lambda _: message(
            80,
            cluster_id=None,
            timeout=SECOND,
            voter_id=77,
            voter_directory_id=SOME_ID,
            listeners=[{"name": "CONTROLLER", "host": "localhost", "port": 1}],
        ),
        (need(ALTER, CLUSTER),),
        errors(35),
    ),
    Probe(
        "RemoveRaftVoter",
        lambda _: message(81, cluster_id=None, voter_id=77, voter_directory_id=SOME_ID),
        (need(ALTER, CLUSTER),),
        errors(35),
    ),
)

PROBES = (*SETTINGS, *ACLS, *QUOTAS, *CREDENTIALS, *NODES)
