"""DeleteGroups version 3: the response has a text for each error (KIP-1331).

The request has the fields of version 2.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.delete_groups.v2 import request as v2_request, response as v2_response
from kio.static.primitive import i16


class DeleteGroupsRequest(v2_request.DeleteGroupsRequest):
    """Asks for the deletion of groups."""

    __slots__ = ()
    __version__: ClassVar[i16] = i16(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult(v2_response.DeletableGroupResult):
    """The result for one group."""

    __version__: ClassVar[i16] = i16(3)
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """None if there was no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(v2_response.DeleteGroupsResponse):
    """The results for all groups of the request."""

    __version__: ClassVar[i16] = i16(3)
    results: tuple[DeletableGroupResult, ...]
