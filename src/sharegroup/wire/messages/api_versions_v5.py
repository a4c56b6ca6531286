"""ApiVersions version 5: the client may name the cluster and the node that it expects (KIP-1242).

The response has the fields of version 4.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.api_versions.v4 import request as v4_request, response as v4_response
from kio.schema.api_versions.v4.response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from kio.schema.types import BrokerId
from kio.static.primitive import i16

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(v4_request.ApiVersionsRequest):
    """Asks for the APIs and features of a broker."""

    __version__: ClassVar[i16] = i16(5)
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """The cluster that the client expects here; None if it expects none."""
    node_id: BrokerId = field(metadata={"kafka_type": "int32"}, default=BrokerId(-1))


class ApiVersionsResponse(v4_response.ApiVersionsResponse):
    """The APIs and features of a broker."""

    __slots__ = ()
    __version__: ClassVar[i16] = i16(5)
