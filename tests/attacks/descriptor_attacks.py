"""Attacks by connections and files: descriptors are a budget too."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta

from kio.schema.create_topics.v7 import request as create_topics

from tests.attacks.batches import honest_batch
from tests.attacks.probe import API_VERSIONS
from tests.attacks.target import Target, join_request, produce_request, produced
from tests.faults.login import Login, call
from tests.faults.raw_connection import RawConnection

FEW_DESCRIPTORS = 1024
SOME_CONNECTIONS = 1_100
MANY_CONNECTIONS = 5_000
PER_ADDRESS_MAX = 500
NEW_CLIENTS = 20


def some_connections(target: Target) -> Iterator[None]:
    """1,100 connections where the broker may have 1,024 descriptors."""
    yield from _connections(target, SOME_CONNECTIONS)


def many_connections(target: Target) -> Iterator[None]:
    """5,000 connections from one address."""
    yield from _connections(target, MANY_CONNECTIONS)


def _connections(target: Target, count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1_000), hard))
    honest = target.connect()
    with ExitStack() as stack:
        stack.enter_context(honest)
        opened = 0
        for _ in range(count):
            peer = socket.socket()
            stack.enter_context(peer)
            peer.settimeout(0.5)
            with suppress(OSError):  # A full backlog or a refusal: the next one tries as well.
                peer.connect(("127.0.0.1", target.port))
                opened += 1
        target.note(opened=opened)
        target.found += _served_on(honest, target)
        yield


def _served_on(connection: RawConnection, target: Target) -> list[str]:
    """Problems of an honest client that was connected before the others came."""
    problems = []
    name = f"new-{time.monotonic_ns()}"
    try:
        connection.ask(create_request(name))
        code = produced(connection.ask(produce_request(name, honest_batch(1, b"x"))))
        if code:
            problems.append(f"produce to a new topic beside the connections: error code {code}")
        code = int(connection.ask(join_request(name, "m", [name])).error_code)
        if code:
            problems.append(f"join beside the connections: error code {code}")
    except OSError as error:
        problems.append(f"a client that was there before: {type(error).__name__}: {error}")
    return problems


def create_request(name: str) -> object:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return create_topics.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=10))


def new_clients_are_served(target: Target) -> list[str]:
    """20 new clients from another address get an answer each, before they log in."""
    encryption = Login(target.login.authority if target.login else "", user="")
    served = 0
    for _ in range(NEW_CLIENTS):
        with suppress(OSError), socket.socket() as peer:
            peer.settimeout(1.0)
            peer.bind(("127.0.0.2", 0))
            peer.connect(("127.0.0.1", target.port))
            with encryption.enter(peer) as entered:
                call(entered, API_VERSIONS, b"", version=0)
            served += 1
    target.note(new_clients_served=served)
    if served < NEW_CLIENTS:
        return [f"{served} of {NEW_CLIENTS} new clients of another address were served"]
    return []


def open_descriptors(pid: int) -> int:
    """The number of descriptors that a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
