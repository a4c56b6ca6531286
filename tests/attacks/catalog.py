"""All attacks that run against a broker process, in the order of the list of attacks.

`tests.attacks.data_attacks` has those on files; damage, full disks, permissions and locks, which
held from the beginning, are in `tests/faults`.
"""

from __future__ import annotations

from tests.attacks import (
    answer_attacks as answers,
    descriptor_attacks as descriptors,
    log_attacks as logs,
    protocol_attacks as protocol,
    record_attacks as records,
    total_attacks as totals,
)
from tests.attacks.attack import Attack

DECOMPRESSED_MIB = 64
ANSWERS_MIB = 128
REQUESTS_MIB = 128
SESSIONS_MIB = 32
NAMES_MIB = 64
SETTINGS_MIB = 16

ATTACKS: tuple[Attack, ...] = (
    Attack(
        "bomb-by-timestamp",
        "a compressed batch of 9 million records, one ListOffsets(-3)",
        records.bomb_by_timestamp,
        records.make_topics,
        budget_mib=DECOMPRESSED_MIB + REQUESTS_MIB,
    ),
    Attack(
        "bomb-to-compacted-topic",
        "the same batch produced to a compacted topic",
        records.bomb_to_compacted_topic,
        records.make_topics,
        budget_mib=DECOMPRESSED_MIB + REQUESTS_MIB,
        soak=True,
    ),
    Attack(
        "bomb-named-often",
        "ListOffsets names a small bomb 20 times",
        records.bomb_named_often,
        records.make_topics,
        budget_mib=DECOMPRESSED_MIB + REQUESTS_MIB,
    ),
    Attack(
        "bombs-that-are-accepted",
        "compressed batches within all limits of a header, looked up by time",
        records.bombs_that_are_accepted,
        records.make_topics,
        budget_mib=2 * DECOMPRESSED_MIB + REQUESTS_MIB,
        slow=True,
        soak=True,
    ),
    Attack(
        "gzip-of-nothing",
        "1 MB of empty gzip members",
        records.gzip_of_nothing,
        records.make_topics,
        budget_mib=DECOMPRESSED_MIB + REQUESTS_MIB,
        soak=True,
    ),
    Attack(
        "fetches-unread",
        "100 pipelined fetches of 55 MB, answers never read",
        answers.fetches_unread,
        answers.full,
        soak=True,
    ),
    Attack(
        "fetches-behind-a-long-poll",
        "a long poll with 20 such fetches behind it",
        answers.fetches_behind_a_long_poll,
        answers.make_full_and_empty,
        soak=True,
    ),
    Attack(
        "metadata-of-everything",
        "20 pipelined Metadata requests with 19,000 partitions",
        answers.metadata_of_everything,
        answers.big,
        soak=True,
    ),
    Attack(
        "offsets-of-everything",
        "20 pipelined ListOffsets with 19,000 partitions",
        answers.offsets_of_everything,
        answers.big,
        soak=True,
    ),
    Attack(
        "log-dirs-of-everything",
        "20 pipelined DescribeLogDirs with 19,000 partitions",
        answers.log_dirs_of_everything,
        answers.big,
    ),
    Attack(
        "join-of-a-large-topic",
        "a share group joins a topic of 19,000 partitions",
        answers.join_of_a_large_topic,
        answers.big,
    ),
    Attack(
        "parked-fetches",
        "99 parked fetches with min_bytes = 2^31-1, then records",
        answers.parked_fetches,
        answers.full,
        soak=True,
    ),
    Attack(
        "half-frames",
        "20 halves of frames of 99 MiB",
        totals.half_frames,
        budget_mib=REQUESTS_MIB + ANSWERS_MIB,
        soak=True,
    ),
    Attack(
        "many-half-frames",
        "500 connections with 2 MiB of a frame each",
        totals.many_half_frames,
        budget_mib=REQUESTS_MIB + ANSWERS_MIB,
    ),
    Attack(
        "sent-and-closed",
        "100 connections that send 10 MiB behind a request decoded in slices, and close",
        totals.sent_and_closed,
        budget_mib=REQUESTS_MIB + ANSWERS_MIB,
    ),
    Attack(
        "fetch-sessions",
        "10 fetch sessions of 29,990 partitions each",
        totals.fetch_sessions,
        budget_mib=SESSIONS_MIB,
        kept_mib=SESSIONS_MIB,
        slow=True,
    ),
    Attack(
        "share-sessions",
        "10 share sessions of 29,990 partitions each",
        totals.share_sessions,
        totals.make_session_topic,
        budget_mib=SESSIONS_MIB + NAMES_MIB,
        kept_mib=SESSIONS_MIB,
        slow=True,
    ),
    Attack(
        "large-topic-names",
        "10 share-group heartbeats with 32 MB of topic names",
        totals.large_topic_names,
        kept_mib=NAMES_MIB + SESSIONS_MIB,
    ),
    Attack(
        "many-topic-names",
        "100 members with 29,000 topic names each",
        totals.many_topic_names,
        slow=True,
    ),
    Attack(
        "many-groups",
        "5,000 share groups with ids of 32 KB",
        totals.many_groups,
        kept_mib=NAMES_MIB + SESSIONS_MIB,
        slow=True,
    ),
    Attack(
        "many-short-groups",
        "20,000 share groups with ids of 240 bytes",
        totals.many_short_groups,
        kept_mib=NAMES_MIB + SESSIONS_MIB,
        slow=True,
    ),
    Attack(
        "groups-at-the-limit",
        "100 share groups with 1 MB of legal topic names each",
        totals.groups_at_the_limit,
        kept_mib=NAMES_MIB + SESSIONS_MIB,
    ),
    Attack(
        "group-settings",
        "40 MB of settings of groups that do not exist",
        totals.group_settings,
        budget_mib=SETTINGS_MIB + REQUESTS_MIB,
        kept_mib=SETTINGS_MIB + SESSIONS_MIB,
    ),
    Attack(
        "legal-group-settings",
        "the same with legal names, and a limit of 1 MiB",
        totals.legal_group_settings,
        settings={"sharegroup.group.settings.bytes.max": str(1 << 20)},
        kept_mib=SETTINGS_MIB + SESSIONS_MIB,
    ),
    Attack(
        "lying-count",
        "a 69-byte batch that claims 2^31-1 records, read by a share group",
        records.lying_count,
        records.make_lying_topic,
        after=records.honest_record_is_reached,
        soak=True,
    ),
    Attack(
        "many-lying-counts",
        "1,000 such batches in one request",
        records.many_lying_counts,
        records.make_lying_topic,
        after=records.few_files_are_made,
    ),
    Attack(
        "many-lying-counts-1024",
        "the same under ulimit -n 1024",
        records.many_lying_counts,
        records.make_lying_topic,
        after=records.few_files_are_made,
        descriptors_max=descriptors.FEW_DESCRIPTORS,
    ),
    Attack(
        "connections-1024",
        "1,100 connections under ulimit -n 1024",
        descriptors.some_connections,
        descriptors_max=descriptors.FEW_DESCRIPTORS,
    ),
    Attack(
        "connections",
        "5,000 connections from one address",
        descriptors.many_connections,
        during=descriptors.new_clients_are_served,
        settings={"max.connections.per.ip": str(descriptors.PER_ADDRESS_MAX)},
    ),
    Attack(
        "control-characters",
        "names with ESC, BEL and newline",
        protocol.names_with_control_characters,
        settings={
            "group.share.min.session.timeout.ms": "1000",
            "group.share.session.timeout.ms": "1000",
            "group.share.min.heartbeat.interval.ms": "200",
            "group.share.heartbeat.interval.ms": "300",
        },
    ),
    Attack(
        "far-future",
        "timestamps in the far future",
        records.far_future,
        records.make_topics,
    ),
    Attack(
        "coordinators-of-nothing",
        "FindCoordinator v4 to v6 with an empty list",
        protocol.coordinators_of_nothing,
    ),
    Attack(
        "log-floods",
        "requests that each cause a line of the log, with names that are long when escaped",
        logs.log_floods,
        logs.prepare,
        slow=True,
    ),
    Attack("long-error-text", "error texts above 32,767 bytes", protocol.long_error_text),
    Attack(
        "half-http",
        "64 half HTTP requests to /metrics",
        protocol.half_http,
        during=protocol.scrape_is_answered,
        settings={"sharegroup.metrics.port": "0"},
    ),
)

BY_NAME = {attack.name: attack for attack in ATTACKS}
SOAKED = tuple(attack for attack in ATTACKS if attack.soak)
