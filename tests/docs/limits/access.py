"""The limits of TLS, and of access control: ACLs, decisions that are kept, and audit lines."""

from __future__ import annotations

from tests.docs.limits.limit import Limit

ACCESS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.acls.max",
        unit="ACLs",
        bounds="ACLs",
        answer="POLICY_VIOLATION for each ACL beyond",
        metric="sharegroup_acls",
        memory_each=800,
    ),
    Limit(
        setting="broker.cluster.acl_entries:TEXT_CHARACTERS_MAX",
        unit="characters",
        bounds="resource name, principal and host of one ACL",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="broker.handlers.access.acl_changes:FILTERS_MAX",
        unit="filters",
        bounds="filters of one DeleteAcls request",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="broker.handlers.access.acl_changes:DELETED_MAX",
        unit="ACLs",
        bounds="ACLs that the filters of one DeleteAcls request match",
        answer="INVALID_REQUEST",
    ),
    Limit(
        setting="broker.access.authorizer:DECISIONS_MAX",
        unit="decisions",
        bounds="decisions of the authorizer that are kept",
        answer="no error: all of them are made anew when they are needed",
        memory_each=400,
    ),
    Limit(
        setting="broker.access.audit:LINES_PER_SECOND",
        unit="lines",
        bounds="audit lines of one kind about one principal in one second",
        answer="no error: the line is counted, and a later one has the count",
        metric="sharegroup_audit_lines_suppressed_total",
    ),
    Limit(
        setting="broker.access.audit:PRINCIPALS_MAX",
        unit="principals",
        bounds="principals whose audit lines are counted",
        answer="no error: the count of the oldest is reported and forgotten",
    ),
    Limit(
        setting="broker.load.log_limit:BURST_LINES",
        unit="lines",
        bounds="log lines about one event without a pause, of `sharegroup serve`",
        answer="no error: the line is counted, and `event=log_lines_suppressed` has the count",
        metric="sharegroup_log_lines_suppressed_total",
    ),
    Limit(
        setting="broker.load.log_limit:LINES_PER_SECOND",
        unit="lines",
        bounds="log lines about one event in a second, after its burst",
        answer="no error: the line is counted, and `event=log_lines_suppressed` has the count",
        metric="sharegroup_log_lines_suppressed_total",
    ),
    Limit(
        setting="cli.common.log_lines:VALUE_CHARACTERS_MAX",
        unit="characters",
        bounds="one value in a log line of `sharegroup serve`",
        answer="no error: the value is cut",
    ),
)

TLS: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.tls.handshakes.max",
        unit="connections",
        bounds="open connections whose TLS handshake is not complete",
        answer="the connection replaces a slow one, or is closed immediately",
        metric="sharegroup_tls_handshakes_pending",
    ),
    Limit(
        setting="sharegroup.tls.handshakes.per.ip.max",
        unit="connections",
        bounds="open connections from one address whose TLS handshake is not complete",
        answer="the connection replaces a slow one, or is closed immediately",
        metric="sharegroup_tls_handshakes_pending",
    ),
    Limit(
        setting="broker.tls.handshakes:ACTIVE_MAX",
        unit="handshakes",
        bounds="TLS handshakes that have begun and are not complete",
        answer="a handshake waits until another one ends or is slow",
        metric="sharegroup_tls_handshakes_pending",
        memory_each=45_000,
    ),
    Limit(
        setting="sharegroup.tls.handshake.timeout.ms",
        unit="ms",
        bounds="time of a TLS handshake",
        answer="the connection is closed",
        metric="sharegroup_tls_handshakes_total",
    ),
    Limit(
        setting="broker.tls.transport:HANDSHAKE_BYTES_MAX",
        unit="bytes",
        bounds="bytes that a peer sends in one TLS handshake",
        answer="the connection is closed",
        metric="sharegroup_tls_handshakes_total",
    ),
    Limit(
        setting="broker.tls.records:OTHER_RECORDS_MAX",
        unit="records",
        bounds="TLS records without content of one connection, such as changes of keys; one more "
        "for each 1,000 records with content",
        answer="the connection is closed, and the log has `event=tls_connection_closed`",
    ),
)
