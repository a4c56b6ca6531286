"""RemoveRaftVoter (81): removes a voter from the quorum of the metadata log.

The quorum is this broker and cannot change, as in a cluster of Kafka whose ``kraft.version`` is 0.
"""

from __future__ import annotations

from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, UnsupportedVersion


def handle(
    parts: Parts, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    raise UnsupportedVersion(
        f"broker {parts.node.node_id} is the only voter of the metadata quorum, and the set of "
        "voters cannot change: kraft.version is 0"
    )


def refuse(request: RemoveRaftVoterRequest, error: KafkaError) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), error_message=str(error)
    )
