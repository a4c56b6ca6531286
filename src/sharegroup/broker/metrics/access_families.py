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
)  # fmt: skip
"""The metrics of ACLs, denials and the audit log."""
