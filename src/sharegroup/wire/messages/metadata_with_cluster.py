"""Metadata of the newest version, with the fields that only versions 8 to 10 have.

Older clients ask for their operations on the cluster with Metadata; DescribeCluster replaced that.
The handler is written for the newest version, so older requests and responses are converted to and
from these classes, by field name.
"""

from dataclasses import dataclass, field

from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.metadata.v13.response import MetadataResponse
from kio.static.primitive import i32


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestWithCluster(MetadataRequest):
    """A request that may ask for the authorized operations on the cluster."""

    include_cluster_authorized_operations: bool = field(
        metadata={"kafka_type": "bool"}, default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseWithCluster(MetadataResponse):
    """A response with the authorized operations on the cluster."""

    cluster_authorized_operations: i32 = field(metadata={"kafka_type": "int32"})
