"""What requests need is imported soon after the start of `serve`, module by module.

The tests count modules and compiled functions: a time would say more about the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from sharegroup.wire.codec.apis import APIS, request_class
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.tokens import full_message

SECONDS_MAX = 600
MESSAGE_MODULES = 3
"""A package of kio with a request and a response: they come in one step."""

STEPS = """
import json, sys
from sharegroup.cli.common.light_imports import import_lightly
import_lightly()
import sharegroup.broker.app
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.broker.server.warm_up import prepare_all_steps

known, steps = set(sys.modules), []
for _ in prepare_all_steps({}, handler_of):
    steps.append(sorted(set(sys.modules) - known))
    known.update(sys.modules)
print(json.dumps(steps))
"""

REQUESTS = """
import asyncio, builtins, json, sys, tempfile
from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.server.warm_up import prepare_all_steps

late = {}

async def ask(parts, name, frame):
    known = set(sys.modules)
    try:
        answer = dispatch(
            parts, handler_of, memoryview(frame), connection_id=1, peer=Peer("127.0.0.1", 1)
        )
        if asyncio.isfuture(answer):
            await asyncio.wait([answer], timeout=0.2)
    except CloseConnection:
        pass
    found = {name for name in set(sys.modules) - known if name.startswith(("sharegroup.", "kio."))}
    if found:
        late[name] = sorted(found)

async def main():
    with tempfile.TemporaryDirectory() as folder:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
        settings |= {"sharegroup.durability": "os", "sharegroup.share.state.apis.enable": "true"}
        running = await app.start(Config.parse(settings))
        for _ in prepare_all_steps(running.parts.prepared, handler_of):
            pass
        for name, frame in json.load(sys.stdin).items():
            await ask(running.parts, name, bytes.fromhex(frame))
        await running.abandon()

asyncio.run(main())
print(json.dumps(late))
"""


def output_of(program: str, given: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_modules_are_imported_one_by_one() -> None:
    steps = output_of(STEPS)
    ours = [[name for name in step if name.startswith("sharegroup.")] for step in steps]
    assert sum(map(len, ours)) >= 150
    assert max(map(len, ours)) <= 2, max(ours, key=len)
    messages = [[name for name in step if name.startswith("kio.")] for step in steps]
    assert max(map(len, messages)) <= MESSAGE_MODULES, max(messages, key=len)


WATCH = """
import asyncio, json, os, shutil, sys, tempfile, threading
from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.load.slices import Slices

at_once, run = [], asyncio.Handle._run
imported = []

class Imports:
    # Notes what the event loop's thread imports; other threads import at any time.
    @staticmethod
    def find_spec(name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            imported.append(name)

sys.meta_path.insert(0, Imports)

def watched(handle):
    # Runs a callback of the event loop, and notes what it imports unless it is a slice.
    imported.clear()
    run(handle)
    if not isinstance(getattr(handle._callback, "__self__", None), Slices):
        found = sorted(imported)
        found = [name for name in found if name.startswith(("sharegroup.", "kio.", "aiokafka"))]
        if found:
            at_once.append(found)

async def started(folder):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder}
    settings |= {"sharegroup.durability": "os", "sharegroup.share.state.apis.enable": "true"}
    return await app.start(Config.parse(settings))
"""

FIRST_REQUEST = f"""
{WATCH}
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.broker.access.peer import Peer

async def ask(frame, folder):
    running = await started(folder)
    parts = running.parts
    asyncio.Handle._run = watched
    asyncio.get_running_loop().call_soon(send, parts, frame)
    await asyncio.sleep(0)
    while len(parts.slices) or parts.late_requests.waiting:
        await asyncio.sleep(0.001)
    for _ in range(20):  # Its handler may await something.
        await asyncio.sleep(0)
    asyncio.Handle._run = run
    await running.abandon()
    assert parts.prepared

def send(parts, frame):
    peer = Peer("127.0.0.1", 1)
    answer = dispatch(parts, handler_of, memoryview(frame), connection_id=1, peer=peer)
    assert asyncio.isfuture(answer), "a first request has to wait"
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

late = {{}}
for name, frame in json.load(sys.stdin).items():
    reader, writer = os.pipe()
    if not os.fork():
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(ask(bytes.fromhex(frame), folder))
        os.write(writer, json.dumps(at_once).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        found = json.loads(answer.read() or '["it has failed"]')
    os.wait()
    if found:
        late[name] = found
print(json.dumps(late))
"""

PRODUCE = 0

OLDER = (
    *((0, 3), (0, 7), (0, 10), (1, 4), (1, 11), (1, 16), (2, 2), (2, 7), (3, 4), (3, 9), (3, 12)),
    *((8, 2), (8, 7), (9, 1), (9, 7), (10, 0), (11, 2), (11, 7), (14, 3), (18, 0), (18, 3)),
    *((19, 4), (22, 1), (24, 0), (24, 3), (26, 1), (28, 0), (28, 3), (36, 0), (68, 0), (78, 1)),
)
"""API keys and versions that older clients send."""


@pytest.mark.slow
def test_the_first_request_of_a_process_imports_in_slices_only() -> None:
    """Each type of request is the first of a process that has just started, with no warm-up."""
    frames = {}
    for key, version in (*((key, api.newest) for key, api in APIS.items()), *OLDER):
        message = full_message(request_class(key, version))
        if key == PRODUCE:  # A transaction begins with another request.
            message = replace(message, transactional_id=None)
        frame = b"".join(encode_request(1, "c", message))[4:]
        frames[f"{APIS[key].name} {version}"] = frame.hex()
    assert output_of(FIRST_REQUEST, json.dumps(frames)) == {}


def test_no_request_imports_a_module_afterwards() -> None:
    """Each type of request, in the newest version, with something in every field."""
    frames = {
        api.name: b"".join(encode_request(1, "c", full_message(request_class(key, api.newest))))[4:]
        for key, api in APIS.items()
    }
    late = output_of(REQUESTS, json.dumps({name: data.hex() for name, data in frames.items()}))
    assert late == {}


EMBEDDED = """
import asyncio, json, sys
from sharegroup.testing import ManualClock, broker

async def main():
    clock = ManualClock()
    async with broker(clock=clock):
        known = set(sys.modules)
        for _ in range(100):
            clock.advance(0.2)
            await asyncio.sleep(0)
        found = set(sys.modules) - known
    print(json.dumps(sorted(name for name in found if name.startswith(("sharegroup.", "kio.")))))

asyncio.run(main())
"""


def test_an_embedded_broker_imports_nothing_by_itself() -> None:
    found = output_of(EMBEDDED)
    assert not [name for name in found if "handlers" in name or name.startswith("kio.")]


@pytest.mark.parametrize("name", ["sharegroup.ids", "sharegroup.no_such_module", "no_such_module"])
def test_what_is_there_or_nowhere_takes_no_step(name: str) -> None:
    program = f"""
import json, sharegroup.ids
from sharegroup.broker.server.preparing import import_in_steps
print(json.dumps(len(list(import_in_steps({name!r})))))
"""
    assert output_of(program) == 0
