"""Kafka's error codes as exceptions: one class per code that this project uses.

A class is raised where the fault is found and becomes a number in one place, the broker's
dispatch; the client turns numbers back into these classes.  ``retriable`` says whether the
same request may succeed later without anything being changed.
"""

from __future__ import annotations

from typing import ClassVar


class KafkaError(Exception):
    """Something that Kafka's protocol has a code for; its text is for people."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False


class UnknownErrorCode(KafkaError):
    """A broker answered with a code that this version of sharegroup does not know."""


class TlsHandshakeFailed(KafkaError):
    """The two sides found no TLS that both accept, or a certificate is not to be trusted."""


class UnknownServerError(KafkaError):
    """The server failed in a way that it did not expect."""

    code = -1


class OffsetOutOfRange(KafkaError):
    """The offset lies outside the log."""

    code = 1


class CorruptMessage(KafkaError):
    """The record batch fails its checksum or is not whole."""

    code = 2
    retriable = True


class UnknownTopicOrPartition(KafkaError):
    """There is no such topic or partition here."""

    code = 3
    retriable = True


class LeaderNotAvailable(KafkaError):
    """The partition has no leader at the moment."""

    code = 5
    retriable = True


class NotLeaderOrFollower(KafkaError):
    """This broker does not lead the partition."""

    code = 6
    retriable = True


class RequestTimedOut(KafkaError):
    """The request took longer than it was allowed to."""

    code = 7
    retriable = True


class MessageTooLarge(KafkaError):
    """The record batch is larger than the topic takes."""

    code = 10


class OffsetMetadataTooLarge(KafkaError):
    """The note beside a committed offset is too long."""

    code = 12


class NetworkException(KafkaError):
    """The connection broke before the answer came."""

    code = 13
    retriable = True


class CoordinatorLoadInProgress(KafkaError):
    """The coordinator is reading its log."""

    code = 14
    retriable = True


class CoordinatorNotAvailable(KafkaError):
    """The coordinator cannot serve at the moment."""

    code = 15
    retriable = True


class NotCoordinator(KafkaError):
    """This broker is not the group's coordinator."""

    code = 16
    retriable = True


class InvalidTopic(KafkaError):
    """The topic's name is not allowed."""

    code = 17


class InvalidRequiredAcks(KafkaError):
    """The value of acks is not -1, 0 or 1."""

    code = 21


class IllegalGeneration(KafkaError):
    """The generation is not the group's."""

    code = 22


class InconsistentGroupProtocol(KafkaError):
    """The group uses another protocol."""

    code = 23


class InvalidGroupId(KafkaError):
    """The group's id is not allowed."""

    code = 24


class UnknownMemberId(KafkaError):
    """The group has no such member."""

    code = 25


class InvalidSessionTimeout(KafkaError):
    """The session timeout is outside of what the broker allows."""

    code = 26


class RebalanceInProgress(KafkaError):
    """The group is between two assignments: join again."""

    code = 27


class InvalidCommitOffsetSize(KafkaError):
    """There is too much beside the committed offsets."""

    code = 28


class TopicAuthorizationFailed(KafkaError):
    """The topic is not open to this user."""

    code = 29


class GroupAuthorizationFailed(KafkaError):
    """The group is not open to this user."""

    code = 30


class ClusterAuthorizationFailed(KafkaError):
    """The cluster is not open to this user."""

    code = 31


class UnsupportedSaslMechanism(KafkaError):
    """The broker does not offer this SASL mechanism."""

    code = 33


class IllegalSaslState(KafkaError):
    """The SASL message does not fit the conversation."""

    code = 34


class UnsupportedVersion(KafkaError):
    """This version of the request is not served."""

    code = 35


class TopicAlreadyExists(KafkaError):
    """There is a topic of this name already."""

    code = 36


class InvalidPartitions(KafkaError):
    """The number of partitions is not allowed."""

    code = 37


class InvalidReplicationFactor(KafkaError):
    """The replication factor is not allowed."""

    code = 38


class InvalidReplicaAssignment(KafkaError):
    """The replica assignment is not allowed."""

    code = 39


class InvalidConfig(KafkaError):
    """A configuration value is not allowed."""

    code = 40


class NotController(KafkaError):
    """This broker is not the controller."""

    code = 41
    retriable = True


class InvalidRequest(KafkaError):
    """The request contradicts itself or the protocol."""

    code = 42


class UnsupportedForMessageFormat(KafkaError):
    """The record batch is of an old format."""

    code = 43


class PolicyViolation(KafkaError):
    """A policy of this broker forbids the request."""

    code = 44


class OutOfOrderSequenceNumber(KafkaError):
    """The batch is not the producer's next one."""

    code = 45


class DuplicateSequenceNumber(KafkaError):
    """The batch was written before and is no longer remembered."""

    code = 46


class InvalidProducerEpoch(KafkaError):
    """A newer instance of the producer exists."""

    code = 47


class InvalidTransactionState(KafkaError):
    """The producer's transaction is not in a state for this."""

    code = 48


class TransactionCoordinatorFenced(KafkaError):
    """A newer transaction coordinator has written for this producer."""

    code = 52


class KafkaStorageError(KafkaError):
    """The disk failed or is full."""

    code = 56
    retriable = True


class SaslAuthenticationFailed(KafkaError):
    """The broker does not believe that this is the user."""

    code = 58


class UnknownProducerId(KafkaError):
    """The broker does not remember this producer."""

    code = 59


class NonEmptyGroup(KafkaError):
    """The group has members."""

    code = 68


class GroupIdNotFound(KafkaError):
    """There is no such group of this type."""

    code = 69


class FetchSessionIdNotFound(KafkaError):
    """There is no such fetch session."""

    code = 70
    retriable = True


class InvalidFetchSessionEpoch(KafkaError):
    """The fetch session's epoch is not the next one."""

    code = 71
    retriable = True


class FencedLeaderEpoch(KafkaError):
    """The leader epoch is older than the partition's."""

    code = 74
    retriable = True


class UnknownLeaderEpoch(KafkaError):
    """The leader epoch is newer than the partition's."""

    code = 75
    retriable = True


class UnsupportedCompressionType(KafkaError):
    """The compression codec is not known."""

    code = 76


class OffsetNotAvailable(KafkaError):
    """The offset is not known at the moment."""

    code = 78
    retriable = True


class MemberIdRequired(KafkaError):
    """Join again with the member id that comes with this."""

    code = 79


class GroupMaxSizeReached(KafkaError):
    """The group has as many members as it may have."""

    code = 81


class FencedInstanceId(KafkaError):
    """Another member has joined with this instance id since."""

    code = 82


class GroupSubscribedToTopic(KafkaError):
    """A member of the group reads the topic."""

    code = 86


class InvalidRecord(KafkaError):
    """A record contradicts its batch or the topic."""

    code = 87


class UnstableOffsetCommit(KafkaError):
    """A transaction that is not over has offsets of this group."""

    code = 88
    retriable = True


class ThrottlingQuotaExceeded(KafkaError):
    """There were more changes than the quota allows."""

    code = 89
    retriable = True


class InvalidUpdateVersion(KafkaError):
    """The feature cannot have this version."""

    code = 95


class FeatureUpdateFailed(KafkaError):
    """The feature could not be changed."""

    code = 96


class UnknownTopicId(KafkaError):
    """There is no topic with this id."""

    code = 100
    retriable = True


class FencedMemberEpoch(KafkaError):
    """The member's epoch is not the one the group expects."""

    code = 110


class InvalidRecordState(KafkaError):
    """The record is not acquired by this member."""

    code = 121


class ShareSessionNotFound(KafkaError):
    """There is no such share session."""

    code = 122
    retriable = True


class InvalidShareSessionEpoch(KafkaError):
    """The share session's epoch is not the next one."""

    code = 123
    retriable = True


class FencedStateEpoch(KafkaError):
    """The share partition's state was made again since."""

    code = 124


class ShareSessionLimitReached(KafkaError):
    """There are as many share sessions as there may be."""

    code = 133
    retriable = True


NONE = 0
"""The code that means: no error."""

BY_CODE: dict[int, type[KafkaError]] = {
    error.code: error
    for error in (
        UnknownServerError,
        OffsetOutOfRange,
        CorruptMessage,
        UnknownTopicOrPartition,
        LeaderNotAvailable,
        NotLeaderOrFollower,
        RequestTimedOut,
        MessageTooLarge,
        OffsetMetadataTooLarge,
        NetworkException,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
        InvalidTopic,
        InvalidRequiredAcks,
        IllegalGeneration,
        InconsistentGroupProtocol,
        InvalidGroupId,
        UnknownMemberId,
        InvalidSessionTimeout,
        RebalanceInProgress,
        InvalidCommitOffsetSize,
        TopicAuthorizationFailed,
        GroupAuthorizationFailed,
        ClusterAuthorizationFailed,
        UnsupportedSaslMechanism,
        IllegalSaslState,
        UnsupportedVersion,
        TopicAlreadyExists,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidReplicaAssignment,
        InvalidConfig,
        NotController,
        InvalidRequest,
        UnsupportedForMessageFormat,
        PolicyViolation,
        OutOfOrderSequenceNumber,
        DuplicateSequenceNumber,
        InvalidProducerEpoch,
        InvalidTransactionState,
        TransactionCoordinatorFenced,
        KafkaStorageError,
        SaslAuthenticationFailed,
        UnknownProducerId,
        NonEmptyGroup,
        GroupIdNotFound,
        FetchSessionIdNotFound,
        InvalidFetchSessionEpoch,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        UnsupportedCompressionType,
        OffsetNotAvailable,
        MemberIdRequired,
        GroupMaxSizeReached,
        FencedInstanceId,
        GroupSubscribedToTopic,
        InvalidRecord,
        UnstableOffsetCommit,
        ThrottlingQuotaExceeded,
        InvalidUpdateVersion,
        FeatureUpdateFailed,
        UnknownTopicId,
        FencedMemberEpoch,
        InvalidRecordState,
        ShareSessionNotFound,
        InvalidShareSessionEpoch,
        FencedStateEpoch,
        ShareSessionLimitReached,
    )
}


def error_for(code: int, message: str) -> KafkaError:
    """The exception for a code that a broker answered with; ``message`` is its text."""
    error = BY_CODE.get(code)
    if error is None:
        return UnknownErrorCode(f"error code {code}: {message}")
    return error(message)
