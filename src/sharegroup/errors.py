"""Kafka's error codes as exceptions: one class per code that this project uses.

A class is raised where the fault is found and becomes a number in one place, the broker's
dispatch; the client turns numbers back into these classes.  ``retriable`` says whether the
same request may succeed later without anything being changed.
"""

from __future__ import annotations

from typing import ClassVar

BY_CODE: dict[int, type[KafkaError]] = {}
"""The class of each code; a class enters itself."""


class KafkaError(Exception):
    """Something that Kafka's protocol has a code for; its text is for people."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool | None = None) -> None:
        """A class that gives no code is a kind of the one above it, on the wire the same."""
        super().__init_subclass__()
        if code is not None:
            assert code not in BY_CODE, f"{cls.__name__}: {BY_CODE[code].__name__} has code {code}"
            cls.code = code
            BY_CODE[code] = cls
        if retriable is not None:
            cls.retriable = retriable


class UnknownErrorCode(KafkaError):
    """A broker answered with a code that this version of sharegroup does not know."""


class TlsHandshakeFailed(KafkaError):
    """The two sides found no TLS that both accept, or a certificate is not to be trusted."""


class UnknownServerError(KafkaError, code=-1):
    """The server failed in a way that it did not expect."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset lies outside the log."""


class CorruptMessage(KafkaError, code=2, retriable=True):
    """The record batch fails its checksum or is not whole."""


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True):
    """There is no such topic or partition here."""


class LeaderNotAvailable(KafkaError, code=5, retriable=True):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(KafkaError, code=6, retriable=True):
    """This broker does not lead the partition."""


class RequestTimedOut(KafkaError, code=7, retriable=True):
    """The request took longer than it was allowed to."""


class MessageTooLarge(KafkaError, code=10):
    """The record batch is larger than the topic takes."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The note beside a committed offset is too long."""


class NetworkException(KafkaError, code=13, retriable=True):
    """The connection broke before the answer came."""


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True):
    """The coordinator is reading its log."""


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True):
    """The coordinator cannot serve at the moment."""


class NotCoordinator(KafkaError, code=16, retriable=True):
    """This broker is not the group's coordinator."""


class InvalidTopic(KafkaError, code=17):
    """The topic's name is not allowed."""


class InvalidRequiredAcks(KafkaError, code=21):
    """The value of acks is not -1, 0 or 1."""


class IllegalGeneration(KafkaError, code=22):
    """The generation is not the group's."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The group uses another protocol."""


class InvalidGroupId(KafkaError, code=24):
    """The group's id is not allowed."""


class UnknownMemberId(KafkaError, code=25):
    """The group has no such member."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside of what the broker allows."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is between two assignments: join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """There is too much beside the committed offsets."""


class TopicAuthorizationFailed(KafkaError, code=29):
    """The topic is not open to this user."""


class GroupAuthorizationFailed(KafkaError, code=30):
    """The group is not open to this user."""


class ClusterAuthorizationFailed(KafkaError, code=31):
    """The cluster is not open to this user."""


class UnsupportedSaslMechanism(KafkaError, code=33):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslState(KafkaError, code=34):
    """The SASL message does not fit the conversation."""


class UnsupportedVersion(KafkaError, code=35):
    """This version of the request is not served."""


class TopicAlreadyExists(KafkaError, code=36):
    """There is a topic of this name already."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not allowed."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is not allowed."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The replica assignment is not allowed."""


class InvalidConfig(KafkaError, code=40):
    """A configuration value is not allowed."""


class NotController(KafkaError, code=41, retriable=True):
    """This broker is not the controller."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=43):
    """The record batch is of an old format."""


class PolicyViolation(KafkaError, code=44):
    """A policy of this broker forbids the request."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """The batch is not the producer's next one."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """The batch was written before and is no longer remembered."""


class InvalidProducerEpoch(KafkaError, code=47):
    """A newer instance of the producer exists."""


class InvalidTransactionState(KafkaError, code=48):
    """The producer's transaction is not in a state for this."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """A newer transaction coordinator has written for this producer."""


class KafkaStorageError(KafkaError, code=56, retriable=True):
    """The disk failed or is full."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """The broker does not believe that this is the user."""


class UnknownProducerId(KafkaError, code=59):
    """The broker does not remember this producer."""


class NonEmptyGroup(KafkaError, code=68):
    """The group has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no such group of this type."""


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True):
    """There is no such fetch session."""


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True):
    """The fetch session's epoch is not the next one."""


class FencedLeaderEpoch(KafkaError, code=74, retriable=True):
    """The leader epoch is older than the partition's."""


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True):
    """The leader epoch is newer than the partition's."""


class UnsupportedCompressionType(KafkaError, code=76):
    """The compression codec is not known."""


class OffsetNotAvailable(KafkaError, code=78, retriable=True):
    """The offset is not known at the moment."""


class MemberIdRequired(KafkaError, code=79):
    """Join again with the member id that comes with this."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group has as many members as it may have."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has joined with this instance id since."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """A member of the group reads the topic."""


class InvalidRecord(KafkaError, code=87):
    """A record contradicts its batch or the topic."""


class UnstableOffsetCommit(KafkaError, code=88, retriable=True):
    """A transaction that is not over has offsets of this group."""


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True):
    """There were more changes than the quota allows."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The feature cannot have this version."""


class FeatureUpdateFailed(KafkaError, code=96):
    """The feature could not be changed."""


class UnknownTopicId(KafkaError, code=100, retriable=True):
    """There is no topic with this id."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member's epoch is not the one the group expects."""


class InvalidRecordState(KafkaError, code=121):
    """The record is not acquired by this member."""


class ShareSessionNotFound(KafkaError, code=122, retriable=True):
    """There is no such share session."""


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True):
    """The share session's epoch is not the next one."""


class FencedStateEpoch(KafkaError, code=124):
    """The share partition's state was made again since."""


class ShareSessionLimitReached(KafkaError, code=133, retriable=True):
    """There are as many share sessions as there may be."""


NONE = 0
"""The code that means: no error."""


def error_for(code: int, message: str) -> KafkaError:
    """The exception for a code that a broker answered with; ``message`` is its text."""
    error = BY_CODE.get(code)
    if error is None:
        return UnknownErrorCode(f"error code {code}: {message}")
    return error(message)
