"""Kafka's error codes as exceptions: one class for each code of Apache Kafka 4.4.

The list is complete because Apache Kafka brokers answer with codes that this project's broker
never uses.  A client treats a code without a class as fatal, even if the request is retriable.

An error is raised as an instance of its class.  The broker's dispatch encodes it as a number, and
the client turns the number back into the class.  ``retriable`` says whether the same request may
succeed later without anything being changed.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from sharegroup.escaping import escaped

ErrorT = TypeVar("ErrorT", bound=BaseException)

BY_CODE: dict[int, type[KafkaError]] = {}
"""Error classes by code. Each class registers itself when it is defined."""


TEXT_BYTES_MAX = 4_096
"""Maximum length of an error text in UTF-8 bytes.

Texts quote names that peers chose, which may be much longer. Kafka's strings are limited to
32,767 bytes.
"""

_ELLIPSIS = "…"


class KafkaError(Exception):
    """Base class of the errors that have a code in Kafka's protocol. The text is for people.

    A text longer than `TEXT_BYTES_MAX` is cut, so it fits into every response and log line. It is
    one line without control characters, even if it quotes names or texts of a peer.
    """

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    is_of_advertised = False
    """Whether a broker answers, and only an address that it advertises cannot be reached."""
    ends_renewal = False
    """Whether the consumer that raises it goes on, and renews no acquisition locks any more."""

    def __str__(self) -> str:
        text = super().__str__()
        # No character takes more than four bytes, so short texts need not be encoded.
        # The cut comes first: escaping a longer text would take time for nothing.
        return escaped(text if len(text) <= TEXT_BYTES_MAX // 4 else _cut(text))

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool | None = None) -> None:
        """Register the class under its code. A class without a code has that of its base class."""
        super().__init_subclass__()
        if code is not None:
            assert code not in BY_CODE, f"{cls.__name__}: {BY_CODE[code].__name__} has code {code}"
            cls.code = code
            BY_CODE[code] = cls
        if retriable is not None:
            cls.retriable = retriable


def _cut(text: str) -> str:
    """Return the text in at most `TEXT_BYTES_MAX` UTF-8 bytes, with an ellipsis if it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= TEXT_BYTES_MAX:
        return text
    kept = encoded[: TEXT_BYTES_MAX - len(_ELLIPSIS.encode())]
    return kept.decode("utf-8", "ignore") + _ELLIPSIS


class MissingExtra(ModuleNotFoundError):
    """A library of an extra of sharegroup is not installed; the text says how to install it."""


class AdvertisedNote(str):
    """A note of an exception: an address that a broker advertises was never reached."""

    __slots__ = ()


class UnknownErrorCode(KafkaError):
    """A broker answered with a code that this version of sharegroup does not know."""


class TlsHandshakeFailed(KafkaError):
    """The TLS handshake failed: no version or cipher in common, or a certificate is not trusted."""


class AuthorizationException(KafkaError):
    """Base class of errors for a missing permission; the text names the permission if known."""

    resource_name: str | None = None
    """The topic, group or transactional id that may not be used; None if no broker named it."""


class UnknownServerError(KafkaError, code=-1):
    """The server failed unexpectedly."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset lies outside the log."""


class CorruptMessage(KafkaError, code=2, retriable=True):
    """The record batch is incomplete or does not match its checksum."""


class UnreadableBatch(CorruptMessage):
    """The offsets [first, end) of a partition cannot be read; the reader has settled nothing.

    ``batch`` has the bytes of their record batch as they were fetched.
    """

    def __init__(
        self,
        reason: object,
        *,
        topic: str,
        partition: int,
        first: int,
        end: int,
        batch: bytes = b"",
        action: str,
    ) -> None:
        super().__init__(
            f"topic {topic!r} partition {partition} offsets {first} to {end - 1} cannot be read: "
            f"{reason}; {action}"
        )
        self.topic = topic
        self.partition = partition
        self.first = first
        self.end = end
        self.batch = batch


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True):
    """There is no such topic or partition here."""


class InvalidFetchSize(KafkaError, code=4):
    """The fetch size is not allowed."""


class LeaderNotAvailable(KafkaError, code=5, retriable=True):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(KafkaError, code=6, retriable=True):
    """This broker does not lead the partition."""


class RequestTimedOut(KafkaError, code=7, retriable=True):
    """The request took longer than it was allowed to."""


class BrokerNotAvailable(KafkaError, code=8):
    """The broker is not available."""


class ReplicaNotAvailable(KafkaError, code=9, retriable=True):
    """This broker has no replica of the partition at the moment."""


class MessageTooLarge(KafkaError, code=10):
    """The record batch is larger than the topic allows."""


class ControllerMoved(KafkaError, code=11):
    """The controller has moved to another broker."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The metadata of a committed offset is too long."""


class NetworkException(KafkaError, code=13, retriable=True):
    """The connection was lost before the response arrived."""


class NoAnswer(NetworkException):
    """The broker did not answer a request in time, so the connection was closed."""


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True):
    """The coordinator is reading its log."""


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True):
    """The coordinator cannot serve at the moment."""


class NotCoordinator(KafkaError, code=16, retriable=True):
    """This broker is not the group's coordinator."""


class InvalidTopic(KafkaError, code=17):
    """The topic's name is not allowed."""


class RecordBatchTooLarge(KafkaError, code=18):
    """The record batches are larger than a segment of the topic."""


class NotEnoughReplicas(KafkaError, code=19, retriable=True):
    """The partition has fewer in-sync replicas than min.insync.replicas: nothing was written."""


class NotEnoughReplicasAfterAppend(KafkaError, code=20, retriable=True):
    """The batch is in the leader's log, but in too few in-sync replicas."""


class InvalidRequiredAcks(KafkaError, code=21):
    """The value of acks is not -1, 0 or 1."""


class IllegalGeneration(KafkaError, code=22):
    """The generation is not the group's current generation."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The group uses another protocol."""


class InvalidGroupId(KafkaError, code=24):
    """The group's id is not allowed."""


class UnknownMemberId(KafkaError, code=25):
    """The group has no such member."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside the range that the broker allows."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is rebalancing: join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """The metadata of the committed offsets is too large."""


class TopicAuthorizationFailed(AuthorizationException, code=29):
    """The user is not authorized to access the topic."""


class GroupAuthorizationFailed(AuthorizationException, code=30):
    """The user is not authorized to access the group."""


class ClusterAuthorizationFailed(AuthorizationException, code=31):
    """The user is not authorized to access the cluster."""


class InvalidTimestamp(KafkaError, code=32):
    """A record's timestamp is outside the range that its topic accepts."""


class UnsupportedSaslMechanism(KafkaError, code=33):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslState(KafkaError, code=34):
    """The SASL message does not fit the conversation."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not support this version of the request."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic with this name already exists."""


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
    """The record batch has an old format."""


class PolicyViolation(KafkaError, code=44):
    """A policy of this broker forbids the request."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """The batch is not the producer's next one."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """The batch was written before and is no longer remembered."""


class InvalidProducerEpoch(KafkaError, code=47):
    """A newer instance of the producer exists."""


class InvalidTransactionState(KafkaError, code=48):
    """The state of the producer's transaction does not allow the request."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The transactional id has another producer id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is larger than the broker allows."""


class ConcurrentTransactions(KafkaError, code=51, retriable=True):
    """Another operation on the same transaction has not ended."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """A newer transaction coordinator has written for this producer."""


class TransactionalIdAuthorizationFailed(AuthorizationException, code=53):
    """The user may not use the transactional id, or the broker does not support transactions."""


class SecurityDisabled(KafkaError, code=54):
    """The broker has no authorizer."""


class OperationNotAttempted(KafkaError, code=55):
    """The broker did not attempt this part of the request."""


class KafkaStorageError(KafkaError, code=56, retriable=True):
    """The disk failed or is full."""


class LogDirNotFound(KafkaError, code=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """The broker rejected the user's credentials."""


class UnknownProducerId(KafkaError, code=59):
    """The broker does not remember this producer."""


class ReassignmentInProgress(KafkaError, code=60):
    """The partition's replicas are being reassigned."""


class DelegationTokenDisabled(KafkaError, code=61):
    """The broker does not issue delegation tokens."""


class DelegationTokenNotFound(KafkaError, code=62):
    """There is no such delegation token."""


class DelegationTokenOwnerMismatch(KafkaError, code=63):
    """The user may not change this delegation token."""


class DelegationTokenRequestNotAllowed(KafkaError, code=64):
    """This connection may not ask for delegation tokens."""


class DelegationTokenAuthorizationFailed(AuthorizationException, code=65):
    """The user is not authorized to use the delegation token."""


class DelegationTokenExpired(KafkaError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=67):
    """The type of the principal is not supported."""


class NonEmptyGroup(KafkaError, code=68):
    """The group has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no such group of this type."""


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True):
    """There is no such fetch session."""


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True):
    """The fetch session's epoch is not the next one."""


class ListenerNotFound(KafkaError, code=72, retriable=True):
    """The partition leader has no listener of the name that the request came to."""


class TopicDeletionDisabled(KafkaError, code=73):
    """The cluster does not delete topics."""


class FencedLeaderEpoch(KafkaError, code=74, retriable=True):
    """The leader epoch is older than the partition's."""


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True):
    """The leader epoch is newer than the partition's."""


class UnsupportedCompressionType(KafkaError, code=76):
    """The compression codec is not known."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The broker epoch is out of date: the broker has registered again."""


class OffsetNotAvailable(KafkaError, code=78, retriable=True):
    """The offset is not known at the moment."""


class MemberIdRequired(KafkaError, code=79):
    """Join again with the member id of this response."""


class PreferredLeaderNotAvailable(KafkaError, code=80, retriable=True):
    """The preferred partition leader is not available."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group has reached its maximum number of members."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has joined with this instance id."""


class EligibleLeadersNotAvailable(KafkaError, code=83, retriable=True):
    """No replica may become the partition leader at the moment."""


class ElectionNotNeeded(KafkaError, code=84, retriable=True):
    """The partition already has the leader that the election would choose."""


class NoReassignmentInProgress(KafkaError, code=85):
    """The partition's replicas are not being reassigned."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """A member of the group reads the topic."""


class InvalidRecord(KafkaError, code=87):
    """A record contradicts its batch or the topic."""


class UnstableOffsetCommit(KafkaError, code=88, retriable=True):
    """An open transaction contains offsets of this group."""


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True):
    """There were more changes than the quota allows."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer has the transactional id."""


class ResourceNotFound(KafkaError, code=91):
    """The request names a resource that does not exist."""


class DuplicateResource(KafkaError, code=92):
    """The request names a resource twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The credential does not meet the broker's rules."""


class InconsistentVoterSet(KafkaError, code=94):
    """The sender or the receiver is not a voter."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The feature cannot have this version."""


class FeatureUpdateFailed(KafkaError, code=96):
    """The feature could not be changed."""


class PrincipalDeserializationFailure(KafkaError, code=97):
    """The controller cannot read the principal that a broker forwarded."""


class SnapshotNotFound(KafkaError, code=98):
    """There is no such snapshot."""


class PositionOutOfRange(KafkaError, code=99):
    """The position lies outside the snapshot."""


class UnknownTopicId(KafkaError, code=100, retriable=True):
    """There is no topic with this id."""


class DuplicateBrokerRegistration(KafkaError, code=101):
    """Another broker has this id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker has registered with this id."""


class InconsistentTopicId(KafkaError, code=103, retriable=True):
    """The topic of this name has another id here."""


class InconsistentClusterId(KafkaError, code=104):
    """The broker belongs to another cluster."""


class TransactionalIdNotFound(KafkaError, code=105):
    """There is no such transactional id."""


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True):
    """The fetch session names topics by id and the request by name, or the other way round."""


class IneligibleReplica(KafkaError, code=107):
    """The replica may not join the in-sync replicas."""


class NewLeaderElected(KafkaError, code=108):
    """The partition has a new leader."""


class OffsetMovedToTieredStorage(KafkaError, code=109):
    """The offset is in tiered storage."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member's epoch is not the one the group expects."""


class UnreleasedInstanceId(KafkaError, code=111):
    """Another member still has the instance id."""


class UnsupportedAssignor(KafkaError, code=112):
    """The group does not support this assignor."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member epoch is not the newest."""


class MismatchedEndpointType(KafkaError, code=114):
    """The request is for a controller and was sent to a broker, or the other way round."""


class UnsupportedEndpointType(KafkaError, code=115):
    """This kind of endpoint is not supported."""


class UnknownControllerId(KafkaError, code=116):
    """There is no such controller."""


class UnknownSubscriptionId(KafkaError, code=117):
    """The telemetry subscription is not the client's newest."""


class TelemetryTooLarge(KafkaError, code=118):
    """The telemetry is larger than the broker allows."""


class InvalidRegistration(KafkaError, code=119):
    """The broker's registration is not allowed."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction failed; the next one may succeed."""


class BatchRefused(KafkaError, retriable=True):
    """The record is not written, because others in its batch were refused (KIP-467).

    It can be sent again.
    """


class TransactionAborted(KafkaError):
    """The record is not written, because its transaction is aborted."""


class InvalidRecordState(KafkaError, code=121):
    """The record is not acquired by this member."""


class ShareSessionNotFound(KafkaError, code=122, retriable=True):
    """There is no such share session."""


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True):
    """The share session's epoch is not the next one."""


class FencedStateEpoch(KafkaError, code=124):
    """The state epoch is older than the share partition's: its state was initialized again."""


class InvalidVoterKey(KafkaError, code=125):
    """The voter key is not the receiver's."""


class DuplicateVoter(KafkaError, code=126):
    """The voter is in the set already."""


class VoterNotFound(KafkaError, code=127):
    """There is no such voter."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression is not valid."""


class RebootstrapRequired(KafkaError, code=129):
    """The client's metadata is too old: it has to start from its bootstrap servers."""


class StreamsInvalidTopology(KafkaError, code=130):
    """The topology is not valid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=131):
    """The topology epoch is not valid."""


class StreamsTopologyFenced(KafkaError, code=132):
    """The topology epoch is older than the group's."""


class ShareSessionLimitReached(KafkaError, code=133, retriable=True):
    """The maximum number of share sessions is reached."""


class GroupDeletionFailed(KafkaError, code=134):
    """The group could not be deleted completely."""


class StreamsTopologyDescriptionUpdateFailed(KafkaError, code=135):
    """The topology's description could not be updated."""


class ControllerIdNotRegistered(KafkaError, code=136):
    """No controller has registered with this id."""


NONE = 0
"""The error code for success."""


def first_error(group: BaseExceptionGroup[ErrorT]) -> ErrorT:
    """Return the first exception in nested groups that is not itself a group."""
    error: ErrorT | BaseExceptionGroup[ErrorT] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def error_for(code: int, message: str) -> KafkaError:
    """Return the exception for an error code of a response; ``message`` becomes its text."""
    error = BY_CODE.get(code)
    if error is None:
        return UnknownErrorCode(f"error code {code}: {message}")
    return error(message)
