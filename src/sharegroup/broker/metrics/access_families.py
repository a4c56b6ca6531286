"""The metrics of access control."""

from __future__ import annotations

from sharegroup.broker.metrics.family import Family, MetricType

ACCESS: tuple[Family, ...] = (
    ACLS := Family(
        "sharegroup_acls", MetricType.GAUGE, "ACLs", "ACLs.", (), ("acls-total-count",),
    ),
    DENIALS := Family(
        "sharegroup_authorization_denied_total", MetricType.COUNTER, "denials",
        "Operations that the authorizer denied, by the name of the listener.",
        ("listener",), ("authorization-denied-rate-per-minute",),
    ),
    AUDIT_LINES_SUPPRESSED := Family(
        "sharegroup_audit_lines_suppressed_total", MetricType.COUNTER, "lines",
        "Lines about denials and administrative requests that were not written, because one "
        "principal caused more than 10 of a kind in a second.",
    ),
    LOG_LINES_SUPPRESSED := Family(
        "sharegroup_log_lines_suppressed_total", MetricType.COUNTER, "lines",
        "Lines of the log that were not written, because their event had more than 1,000 lines, "
        "and then more than 2 in a second; `event=log_lines_suppressed` names the events.",
    ),
)  # fmt: skip
"""The metrics of ACLs, denials, the audit log and the log."""
