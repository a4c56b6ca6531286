"""Attacks by sheer number: halves of requests, sessions, groups, names, settings."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.share_fetch.v2 import request as share_fetch

from tests.attacks.target import (
    Target,
    fetch_request,
    frame,
    join_request,
    produce_request,
    send_what_goes,
)

GROUP_RESOURCE = 32
HALVES = 20
CLOSED_CONNECTIONS, SLICED_PARTITIONS, BEHIND = 100, 10_000, 10
HALF_BYTES = 99 << 20
ANNOUNCED_BYTES = 104_857_600
SESSIONS = 10
SESSION_PARTITIONS = 29_990
NAME_BYTES = 32_000
LARGE_HEARTBEATS = 10
LARGE_HEARTBEAT_NAMES = 1_000
MEMBERS = 100
MEMBER_NAMES = 29_000
GROUPS = 5_000
SHORT_GROUPS = 20_000
LARGE_GROUPS = 100
LEGAL_NAME_BYTES = 240
LEGAL_NAMES = 4_000
SETTINGS = 5_000
SETTINGS_A_REQUEST = 500
SETTING_NAME_BYTES = 8_000


def half_frames(target: Target) -> Iterator[None]:
    """20 connections send 99 of 100 MiB each and stop."""
    part = bytes(1 << 20)
    with target.connections(HALVES) as connections:
        sent = 0
        for connection in connections:
            head = struct.pack(">ihhih", ANNOUNCED_BYTES, 0, 9, 1, -1)
            send_what_goes(connection, head)
            for _ in range(HALF_BYTES >> 20):
                taken = send_what_goes(connection, part)
                sent += taken
                if taken < len(part):
                    break
        target.note(sent_mib=sent >> 20)
        yield


def many_half_frames(target: Target) -> Iterator[None]:
    """500 connections send 2 of 100 MiB each and stop."""
    part = bytes(2 << 20)
    with target.connections(500) as connections:
        sent = 0
        for connection in connections:
            send_what_goes(connection, struct.pack(">ihhih", ANNOUNCED_BYTES, 0, 9, 1, -1))
            taken = send_what_goes(connection, part)
            sent += taken
            if taken < len(part):
                break
        target.note(sent_mib=sent >> 20)
        yield


def sent_and_closed(target: Target) -> Iterator[None]:
    """100 connections: a request that is decoded in slices, 10 MiB behind it, and the end.

    What was received is decided, so a closed connection still holds memory and time.
    """
    wide = frame(fetch_request("none", range(SLICED_PARTITIONS)))
    behind = frame(produce_request("none", bytes(1 << 20)))
    sent = 0
    for _ in range(CLOSED_CONNECTIONS):
        with target.connect() as connection:
            if send_what_goes(connection, wide) == len(wide):
                sent += send_what_goes(connection, behind * BEHIND)
    target.note(sent_mib=sent >> 20)
    yield


def fetch_sessions(target: Target) -> Iterator[None]:
    """10 fetch sessions of 29,990 partitions each, most of which do not exist."""
    request = frame(fetch_request("none", range(SESSION_PARTITIONS), session_epoch=0))
    with target.connections(SESSIONS) as connections:
        for connection in connections:
            connection.send(request)
            connection.answer()
        yield


def make_session_topic(target: Target) -> None:
    target.make_big_topic()


def share_sessions(target: Target) -> Iterator[None]:
    """10 share sessions of 29,990 partitions each."""
    with target.connections(SESSIONS) as connections:
        for number, connection in enumerate(connections):
            member = str(UUID(int=number + 1))
            group = "sessions"
            connection.ask(join_request(group, member, ["big"]))
            connection.send(frame(_share_fetch(group, member)))
            connection.answer()
        yield


def _share_fetch(group: str, member: str) -> share_fetch.ShareFetchRequest:
    wanted = tuple(
        share_fetch.FetchPartition(partition_index=number, acknowledgement_batches=())
        for number in range(SESSION_PARTITIONS)
    )
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=0,
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1 << 20,
        max_records=100,
        batch_size=100,
        topics=(share_fetch.FetchTopic(topic_id=uuid4(), partitions=wanted),),
        forgotten_topics_data=(),
    )


def large_topic_names(target: Target) -> Iterator[None]:
    """10 members of share groups subscribe to 32 MB of topic names each."""
    codes: dict[str, int] = {}
    for number in range(LARGE_HEARTBEATS):
        names = [_name(number, index) for index in range(LARGE_HEARTBEAT_NAMES)]
        request = join_request(f"names-{number % 2}", f"m{number}", names)
        code = str(int(target.ask(request).error_code))
        codes[f"code_{code}"] = codes.get(f"code_{code}", 0) + 1
    target.note(**codes)
    yield


def _name(number: int, index: int) -> str:
    return f"{number}-{index}-".ljust(NAME_BYTES, "x")


def many_topic_names(target: Target) -> Iterator[None]:
    """100 members subscribe to 29,000 short topic names each."""
    codes: dict[str, int] = {}
    with target.connect() as connection:
        for number in range(MEMBERS):
            names = [f"{number}-{index}" for index in range(MEMBER_NAMES)]
            answer = connection.ask(join_request("wide", f"m{number}", names))
            code = f"code_{int(answer.error_code)}"
            codes[code] = codes.get(code, 0) + 1
    target.note(**codes)
    yield


def many_groups(target: Target) -> Iterator[None]:
    """5,000 share groups whose ids have 32 KB."""
    yield from _join_groups(target, GROUPS, NAME_BYTES, ["none"])


def many_short_groups(target: Target) -> Iterator[None]:
    """20,000 share groups whose ids are as long as a topic's name may be."""
    yield from _join_groups(target, SHORT_GROUPS, LEGAL_NAME_BYTES, ["none"])


def groups_at_the_limit(target: Target) -> Iterator[None]:
    """100 share groups that subscribe to a megabyte of legal topic names each."""
    names = [f"{index}-".ljust(LEGAL_NAME_BYTES, "t") for index in range(LEGAL_NAMES)]
    yield from _join_groups(target, LARGE_GROUPS, LEGAL_NAME_BYTES, names)


def _join_groups(target: Target, count: int, id_bytes: int, topics: list[str]) -> Iterator[None]:
    codes: dict[str, int] = {}
    with target.connect() as connection:
        for number in range(count):
            group = f"{number}-".ljust(id_bytes, "g")
            answer = connection.ask(join_request(group, "m", topics))
            code = f"code_{int(answer.error_code)}"
            codes[code] = codes.get(code, 0) + 1
    target.note(**codes)
    yield


def group_settings(target: Target) -> Iterator[None]:
    """5,000 settings of groups that do not exist, with names of 8 KB: 40 MB of names."""
    yield from _set_all(target, SETTING_NAME_BYTES)


def legal_group_settings(target: Target) -> Iterator[None]:
    """5,000 settings of groups that do not exist, with legal names: more than a megabyte."""
    yield from _set_all(target, LEGAL_NAME_BYTES)


def _set_all(target: Target, name_bytes: int) -> Iterator[None]:
    accepted = 0
    with target.connect() as connection:
        for first in range(0, SETTINGS, SETTINGS_A_REQUEST):
            answer = connection.ask(
                set_groups(range(first, first + SETTINGS_A_REQUEST), name_characters=name_bytes)
            )
            accepted += sum(int(response.error_code) == 0 for response in answer.responses)
    target.note(accepted=accepted, offered=SETTINGS)
    if accepted == SETTINGS:
        target.found.append(f"all of {SETTINGS} settings of absent groups were accepted: no limit")
    yield


def set_groups(
    numbers: range, *, name_characters: int = 0, delete: bool = False
) -> alter_configs.IncrementalAlterConfigsRequest:
    """Set or delete a setting of the groups with these numbers and names of this length."""
    setting = alter_configs.AlterableConfig(
        name="share.auto.offset.reset",
        config_operation=int(delete),
        value=None if delete else "earliest",
    )
    resources = tuple(
        alter_configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=f"{number}-".ljust(name_characters, "s"),
            configs=(setting,),
        )
        for number in numbers
    )
    return alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def soak_names(target: Target) -> Iterator[None]:
    """One member with 3 MB of topic names; it leaves again."""
    names = [_name(0, index) for index in range(100)]
    member = f"m{time.monotonic_ns()}"
    with target.connect() as connection:
        answer = connection.ask(join_request("soaked", member, names))
        if int(answer.error_code) == 0:
            connection.ask(join_request("soaked", member, [], epoch=-1))
    yield
