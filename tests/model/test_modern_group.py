"""A consumer group of KIP-848 with clients that revoke late, get lost replies and crash.

The model is the clients' own view: each client reads the partitions of the last reply that it got,
until it confirms that it has stopped. No partition may ever have two readers, and when all is quiet
every partition must have one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sharegroup.core.groups.modern.group import ModernGroupState
from sharegroup.errors import FencedMemberEpoch, UnknownMemberId
from sharegroup.ids import TopicIdPartition
from tests.unit.core.modern_group_scene import GROUP, GroupScene, topic_id

TOPICS = ("a", "b")
MEMBERS = ("m1", "m2", "m3", "m4")


@dataclass
class Client:
    """A client's view. It has stopped to read what is in ``owned`` but not in ``assigned``
    when it has ``revoked``."""

    names: tuple[str, ...]
    assignor: str
    epoch: int = 0
    owned: set[TopicIdPartition] = field(default_factory=set)
    assigned: set[TopicIdPartition] = field(default_factory=set)
    is_full: bool = True


class ModernGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = GroupScene()
        self.counts: dict[str, int] = {}
        self.clients: dict[str, Client] = {}

    @initialize(a=st.integers(1, 6), b=st.integers(0, 3))
    def create_topics(self, a: int, b: int) -> None:
        self.counts = {name: count for name, count in (("a", a), ("b", b)) if count}
        self.scene.change_topics(**self.counts)

    @rule(
        name=st.sampled_from(MEMBERS),
        names=st.sets(st.sampled_from(TOPICS), min_size=1),
        assignor=st.sampled_from(["uniform", "range"]),
    )
    def join(self, name: str, names: set[str], assignor: str) -> None:
        """A new process; if one of this id was there, it is gone with all that it read."""
        self.clients[name] = Client(tuple(sorted(names)), assignor)
        self.send(name)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), revokes=st.booleans(), loses_reply=st.booleans())
    def heartbeat(self, data: st.DataObject, revokes: bool, loses_reply: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        if revokes:
            client.owned &= client.assigned
        self.send(name, loses_reply=loses_reply)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        del self.clients[name]
        with suppress(UnknownMemberId):  # It was removed.
            self.scene.leave(name)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def subscribe(self, data: st.DataObject) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        names = data.draw(st.sets(st.sampled_from(TOPICS), min_size=1))
        client.names, client.is_full = tuple(sorted(names)), True

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def add_partitions(self, name: str, more: int) -> None:
        self.counts[name] = min(self.counts.get(name, 0) + more, 8)
        self.scene.change_topics(**self.counts)

    @rule()
    def restart(self) -> None:
        group = GROUP in self.scene.groups
        self.scene.groups = self.scene.restarted()
        if group:
            self.scene.groups.start((GROUP,), self.scene.now_ms, {GROUP: 45_000})

    @precondition(lambda self: self.clients)
    @rule(ms=st.sampled_from([1_000, 30_000, 45_000]))
    def pass_time(self, ms: int) -> None:
        """A member that is removed has noticed by itself that its session is over."""
        for name in self.scene.pass_time(ms):
            client = self.clients.get(name)
            if client is not None:
                client.owned, client.assigned, client.epoch = set(), set(), 0
                client.is_full = True

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        read = [partition for client in self.clients.values() for partition in client.owned]
        assert len(read) == len(set(read)), self.clients

    @invariant()
    def group_is_consistent(self) -> None:
        group = self.scene.groups.find(GROUP)
        if group is None:
            return
        held: list[TopicIdPartition] = []
        for member in group.members.values():
            held += [*member.assigned, *member.pending_revocation]
            assert member.member_epoch <= group.assignment_epoch <= group.epoch
        assert len(held) == len(set(held))
        assert group.owners.keys() == set(held)
        again = self.scene.restarted().existing(GROUP)
        assert (again.members, again.target) == (group.members, group.target)
        assert again.size_bytes == group.size_bytes

    def teardown(self) -> None:
        """When all clients keep sending heartbeats, the group comes to rest."""
        for _ in range(12):
            for name, client in self.clients.items():
                client.owned &= client.assigned
                self.send(name)
        if not self.clients:
            return
        for name in [name for name in self.scene.group.members if name not in self.clients]:
            self.scene.leave(name)
        for _ in range(12):
            for name, client in self.clients.items():
                client.owned &= client.assigned
                self.send(name)
        assert self.scene.group.state is ModernGroupState.STABLE
        readable = {name for client in self.clients.values() for name in client.names}
        assert {partition for client in self.clients.values() for partition in client.owned} == {
            TopicIdPartition(topic_id(name), number)
            for name in readable
            for number in range(self.counts.get(name, 0))
        }

    def send(self, name: str, *, loses_reply: bool = False) -> None:
        client = self.clients[name]
        fields = {"owned": frozenset(client.owned), "server_assignor": client.assignor}
        if client.is_full:
            fields["rebalance_timeout_ms"] = 60_000
        try:
            reply = self.scene.heartbeat(
                name, client.epoch, *(client.names if client.is_full else ()), **fields
            )
        except (FencedMemberEpoch, UnknownMemberId):
            client.owned, client.assigned, client.epoch = set(), set(), 0
            client.is_full = True
            return
        if loses_reply:
            client.is_full = True  # As Kafka's clients do after an error.
            return
        client.epoch = reply.member_epoch
        client.is_full = False
        if reply.assignment is not None:
            client.assigned = set(reply.assignment)
            client.owned |= client.assigned


TestModernGroup = ModernGroupMachine.TestCase
TestModernGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
