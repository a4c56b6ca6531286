"""The option ``kafka``: options of the Kafka consumers that read for a group.

    kafka={"client.rack": "eu-1", "fetch.min.bytes": 4096}

Names are Kafka's, with dots or underscores.  Options that the worker sets by itself, or that are
those of all clients of the application, are refused with what to use instead.  Values are checked
by the consumers, when they are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.declarations.foreign_settings import PAYLOAD

ALL_CLIENTS = (
    "request_timeout_ms", "default_api_timeout_ms", "connect_timeout_ms", "retry_backoff_ms",
    "retry_backoff_max_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms",
    "connections_max_idle_ms", "send_buffer_bytes", "receive_buffer_bytes", "enable_metrics_push",
    "metadata_max_age_ms", "response_bytes_max",
)  # fmt: skip
BOTH = (*ALL_CLIENTS, "client_rack", "fetch_min_bytes", "decompressed_bytes_max")
OF_SHARE_GROUPS = (*BOTH, "fetch_max_bytes")
OF_CONSUMER_GROUPS = (
    *BOTH, "fetch_max_wait_ms", "max_partition_fetch_bytes", "session_timeout_ms",
    "heartbeat_interval_ms", "group_remote_assignor",
)  # fmt: skip
"""The options that a group may have."""

_OF_THE_APP = "App(..., client={{'{name}': ...}}), for all clients of the application"
_SETTLED = "nothing: the worker settles records when their handlers end"
_WAITS = "nothing: a worker may have no room for as long as its handlers run; max_handling=..."
_AHEAD = "concurrency=..., and in_flight_bytes=...: handlers decide how much is fetched ahead"
OWNED: Mapping[str, str] = {
    **{
        name: _OF_THE_APP.format(name=name)
        for name in (
            *("client_id", "client_dns_lookup", "metadata_recovery_strategy", "ssl_context"),
            *("security_protocol", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"),
            *("ssl_check_hostname", "sasl_mechanism", "sasl_plain_username"),
            *("sasl_plain_password", "sasl_oauth_token_provider"),
        )
    },
    "bootstrap_servers": "App(..., bootstrap_servers=...)",
    "group_id": "the first argument of share_group or consumer_group",
    "start_from": "start_from='earliest' or 'latest'",
    "auto_offset_reset": "start_from='earliest' or 'latest'",
    "group_protocol": "group_protocol='consumer' or 'classic' of consumer_group",
    "partition_assignment_strategy": "group_protocol='classic', which is cooperative-sticky",
    "group_instance_id": "nothing: static members are not built",
    "isolation_level": "nothing: the groups of workers read committed records",
    "allow_auto_create_topics": "App(..., prepare=True), or sharegroup worker apply",
    **dict.fromkeys(
        (
            *("share_acknowledgement_mode", "enable_auto_commit", "auto_commit_interval_ms"),
            *("auto_renew", "renew_age_max_ms"),
        ),
        _SETTLED,
    ),
    "max_poll_interval_ms": _WAITS,
    **dict.fromkeys(
        (
            *("max_poll_records", "in_flight_max", "in_flight_bytes", "fetch_ahead_ms"),
            *("share_acquire_mode", "fetch_max_bytes", "fetch_max_wait_ms"),
        ),
        _AHEAD,
    ),
    **dict.fromkeys(("key_deserializer", "value_deserializer"), PAYLOAD),
    "on_deserialization_error": "unreadable='dead_letter' or 'reject'",
}
"""The options that the worker or its application sets, with what to use instead."""


def allowed_options(kind: str) -> tuple[str, ...]:
    """The options of the consumers that a kind of group may have."""
    return OF_SHARE_GROUPS if kind == "share" else OF_CONSUMER_GROUPS


def kafka_options(given: Mapping[str, Any] | None, kind: str, whose: str) -> dict[str, Any]:
    """Return the options by the names of our clients; raises InvalidConfig."""
    if not isinstance(given, Mapping | None):
        raise InvalidConfig(f"{whose}: kafka={given!r:.80}; expected a dict of client options")
    options: dict[str, Any] = {}
    for name, value in (given or {}).items():
        ours = str(name).replace(".", "_")
        if ours in options:
            raise InvalidConfig(f"{whose}: kafka: {name} is given twice, with dots and without")
        options[ours] = value
    owned = {name: instead for name, instead in OWNED.items() if name not in allowed_options(kind)}
    refuse_unknown(options, allowed_options(kind), f"{whose}: kafka", owned, "the option kafka")
    return options
