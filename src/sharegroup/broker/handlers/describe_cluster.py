"""DescribeCluster (60): describes the cluster, which has one broker."""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.permission import operations_on_cluster
from sharegroup.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType

BROKERS, CONTROLLERS = 1, 2
"""The types of endpoints that a client may ask for (KIP-919)."""


def handle(
    parts: Parts, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise _wrong_endpoint(request.endpoint_type)
    node = parts.node
    broker = DescribeClusterBroker(
        broker_id=BrokerId(node.node_id),
        host=node.host,
        port=i32(node.port),
        rack=node.rack,
        is_fenced=False,
    )
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        endpoint_type=request.endpoint_type,
        cluster_id=parts.topics.catalog.cluster_id,
        controller_id=BrokerId(node.node_id),
        brokers=(broker,),
        cluster_authorized_operations=operations_on_cluster(context.rights, request),
    )


def refuse(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        cluster_id="",
        brokers=(),
    )


def _wrong_endpoint(endpoint_type: int) -> KafkaError:
    if endpoint_type == CONTROLLERS:
        return MismatchedEndpointType(
            "this listener is for clients of brokers; the controller has no listener of its own"
        )
    return UnsupportedEndpointType(
        f"endpoint type {endpoint_type} is not known; expected 1 for brokers"
    )
