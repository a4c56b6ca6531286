"""What requests need is imported soon after the start of `serve`, module by module.

The tests count modules and compiled functions: a time would say more about the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sharegroup.wire.apis import APIS, request_class
from sharegroup.wire.encoder import encode_request
from tests.faults.tokens import full_message

SECONDS_MAX = 600
MODULES_OF_A_STEP_MAX = 12
CODEC_MODULES = 30
"""Those of aiokafka's record codec, which come in one step: 15 ms."""

STEPS = """
import json, sys
from sharegroup.cli.light_imports import import_lightly
import_lightly()
import sharegroup.broker.app
from sharegroup.broker.handler_table import handler_of
from sharegroup.broker.warm_up import prepare_steps

known, steps = set(sys.modules), []
for _ in prepare_steps(handler_of):
    steps.append(sorted(set(sys.modules) - known))
    known.update(sys.modules)
print(json.dumps(steps))
"""

REQUESTS = """
import asyncio, builtins, json, sys, tempfile
from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.dispatch import dispatch
from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.broker.handler_table import handler_of
from sharegroup.broker.security.peer import Peer
from sharegroup.broker.warm_up import prepare_steps

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
        for _ in prepare_steps(handler_of):
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
    codec = [step for step in steps if "aiokafka.record.default_records" in step]
    assert [len(step) <= CODEC_MODULES for step in codec] == [True]
    others = [step for step in steps if step not in codec]
    assert max(map(len, others)) <= MODULES_OF_A_STEP_MAX, max(others, key=len)
    ours = [[name for name in step if name.startswith("sharegroup.")] for step in steps]
    assert sum(map(len, ours)) >= 200
    assert max(map(len, ours)) <= 2, max(ours, key=len)


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
from sharegroup.broker.warm_up import import_in_steps
print(json.dumps(len(list(import_in_steps({name!r})))))
"""
    assert output_of(program) == 0
