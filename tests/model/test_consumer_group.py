"""A consumer group with members that behave as clients do, for a while, and then no more.

The clients know only what they were told.  What must hold, whatever happened before: generations
go up; a generation has one assignment, that of one leader, and everybody is told its part of that
one; nobody commits for a generation that is over, nor without having been in it; every request is
answered once, and none waits for ever; and after a crash the group is what its log says.
Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_consumer_group.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sharegroup.core.groups.classic.member import JoinReply, NewMemberId, SyncReply
from sharegroup.core.groups.classic.records import GroupMetadata
from sharegroup.errors import KafkaError
from tests.unit.core.consumer_group_scene import GROUP, Scene

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
NAMES = ("a", "b", "c", "S", "T")
"""Capitals are static members: their instance id is their name."""
SESSION_MS = 10_000
REBALANCE_MS = 30_000

names = st.sampled_from(NAMES)
protocols = st.sampled_from(
    [{"range": b"t"}, {"range": b"t u"}, {"sticky": b"s", "range": b"t"}, {"sticky": b"s"}]
)


@dataclass
class Client:
    """A consumer as it sees itself; ``waits`` is its request that was not answered yet."""

    name: str
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    waits: int | None = None

    @property
    def instance_id(self) -> str | None:
        return self.name if self.name.isupper() else None

    def forget(self) -> None:
        self.member_id, self.generation, self.leads = "", -1, ()


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), members_max=st.sampled_from([2, 5]))
    def begin(self, delay_ms: int, members_max: int) -> None:
        self.scene = Scene(initial_delay_ms=delay_ms, members_max=members_max)
        self.clients = {name: Client(name) for name in NAMES}
        self.leaders: dict[tuple[int, str], str] = {}
        """By generation, and \"\"."""
        self.told: dict[tuple[int, str], bytes] = {}
        """What each member of a generation was told to read."""
        self.offset: int | None = None

    # What clients do

    @rule(name=names, protocols=protocols, is_old=st.booleans())
    def join(self, name: str, protocols: dict[str, bytes], is_old: bool) -> None:
        client = self.clients[name]
        try:
            client.waits = self.scene.ask_to_join(
                name,
                client.member_id,
                instance_id=client.instance_id,
                protocols=protocols,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                must_return=not is_old,
            )
        except KafkaError:
            client.forget()

    @rule(name=names)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        if client.generation < 0:
            return
        generation = client.generation
        parts = {lead: f"{generation}:{lead}".encode() for lead in client.leads}
        try:
            client.waits = self.scene.sync(
                client.member_id,
                generation,
                parts,
                instance_id=client.instance_id,
                protocol=None,
            )
        except KafkaError:
            client.forget()

    @rule(name=names)
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        try:
            self.scene.heartbeat(client.member_id, client.generation, client.instance_id)
        except KafkaError:
            client.forget()

    @rule(name=names)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        self.scene.leave((client.member_id, client.instance_id))
        client.forget()

    @rule(name=names, offset=st.integers(0, 1_000))
    def commit(self, name: str, offset: int) -> None:
        client = self.clients[name]
        is_by_hand = client.generation < 0
        try:
            self.scene.commit(offset, member_id=client.member_id, generation=client.generation)
        except KafkaError:
            return
        self.offset = offset
        state = self.scene.state
        if is_by_hand:
            assert state == "Empty", "without a generation only into a group that nobody is in"
        else:
            assert client.generation == self.current_generation()
            assert state != "CompletingRebalance"

    # What happens to them

    @rule(duration_ms=st.sampled_from([0, 1, 3_000, 9_000, 10_000, 31_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.scene.pass_ms(duration_ms)

    @rule()
    def crash(self) -> None:
        """Who waits is told to come again; what was written holds."""
        self.scene.restart()
        last = max(self.scene.generations(), default=0)
        for known in (self.leaders, self.told):  # Those after it are begun anew.
            for key in [known_key for known_key in known if known_key[0] > last]:
                del known[key]
        for client in self.clients.values():
            client.waits = None
        written = [entry for entry in self.scene.log if isinstance(entry, GroupMetadata)]
        if written and GROUP in self.scene.groups:
            described = self.scene.groups.describe(GROUP)
            assert {member.member_id: member.assignment for member in described.members} == {
                member.member_id: member.assignment for member in written[-1].members
            }

    @rule()
    def everybody_waits_long_enough(self) -> None:
        self.scene.pass_ms(10 * REBALANCE_MS + 10 * SESSION_MS + 300_000)
        self.take_answers()
        assert all(client.waits is None for client in self.clients.values())
        if GROUP in self.scene.groups:
            assert self.scene.state == "Empty", "nobody was heard of"

    @invariant()
    def take_answers(self) -> None:
        if not hasattr(self, "scene"):
            return
        for client in self.clients.values():
            if client.waits is not None and client.waits in self.scene.answers:
                self.take(client, self.scene.answers[client.waits])
                client.waits = None
        if GROUP not in self.scene.groups:  # It never agreed on anything: nobody remembers it.
            self.leaders.clear()
            self.told.clear()

    def take(self, client: Client, reply: object) -> None:
        if isinstance(reply, NewMemberId):
            client.member_id, client.generation = reply.member_id, -1
        elif isinstance(reply, JoinReply):
            client.member_id, client.generation = reply.member_id, reply.generation
            client.leads = tuple(member.member_id for member in reply.members)
            if client.leads and not reply.skip_assignment:
                leader = self.leaders.setdefault((reply.generation, ""), reply.leader)
                assert leader == reply.leader, "a generation has one leader"
        elif isinstance(reply, SyncReply):
            key = client.generation, client.member_id
            assert self.told.setdefault(key, reply.assignment) == reply.assignment
            assert reply.assignment in (b"", "{}:{}".format(*key).encode()) or client.instance_id
        else:
            client.forget()

    @invariant()
    def generations_go_up(self) -> None:
        if not hasattr(self, "scene"):
            return
        written = self.scene.generations()
        assert written == sorted(written)

    @invariant()
    def committed_offset_is_the_last_that_was_accepted(self) -> None:
        if hasattr(self, "scene"):
            assert self.scene.offset() == self.offset

    def current_generation(self) -> int:
        """The newest that a leader was told of, or that was written."""
        told = [generation for generation, _ in self.leaders]
        return max([*told, *self.scene.generations()])


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(
    max_examples=int(EXAMPLES) if EXAMPLES else 25,
    stateful_step_count=40,
)
