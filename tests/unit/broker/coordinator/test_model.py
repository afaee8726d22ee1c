"""Random members join, sync, commit, leave, restart and fall silent; after each step the group is whole.

Appends end at once, late, or with an error, and leadership of the partition comes and goes. In the end all
members fall silent: every request has been answered, and the group is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import _Timer
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.requests import JoinResult, LeavingMember, OffsetToCommit, SyncResult
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import (
    CONFIG,
    DELAY,
    GROUP,
    PROTOCOL_SUPERSET,
    PROTOCOLS,
    REBALANCE,
    SESSION,
    Answer,
    Rig,
)

FOO = TopicPartition("foo", 0)
CLIENTS = 6
#: Of these clients, that many are static members.
STATIC = 3


@dataclass
class _Client:
    """A consumer, as far as the coordinator can see."""

    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    members: tuple[str, ...] = ()
    join: Answer[JoinResult] | None = None
    sync: Answer[SyncResult] | None = None
    synced: bool = False

    def read(self) -> None:
        """Read the answers that have come."""
        if self.join is not None and self.join.given:
            result, self.join = self.join.result, None
            self.member_id = result.member_id
            self.generation_id = result.generation_id if not result.error else -1
            self.leads = not result.error and result.leader_id == result.member_id
            self.members = tuple(member.member_id for member in result.members)
            self.synced = False
            if result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
        if self.sync is not None and self.sync.given:
            result_of_sync, self.sync = self.sync.result, None
            self.synced = not result_of_sync.error
            if result_of_sync.error:
                self.generation_id = -1
            if result_of_sync.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None


_INDEX = st.integers(0, CLIENTS - 1)
_PROTOCOLS = st.sampled_from([PROTOCOLS, PROTOCOL_SUPERSET, (("range", b"changed"),)])


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(replace(CONFIG, offsets_retention=10_000, max_size=5))
        self.partition = self.rig.coordinator.partition_for(GROUP)
        self.epoch = 1
        self.clients = [_Client(f"static-{number}" if number < STATIC else None) for number in range(CLIENTS)]
        self.answers: list[Answer[JoinResult] | Answer[SyncResult] | Answer[dict[TopicPartition, ErrorCode]]]
        self.answers = []
        self.group: Group | None = None
        self.generation_id = 0
        self.committed = -1

    def _read(self) -> None:
        for client in self.clients:
            client.read()

    @rule(
        number=_INDEX,
        protocols=_PROTOCOLS,
        session=st.sampled_from([SESSION, 2 * SESSION]),
        restarts=st.booleans(),
    )
    def join(
        self, number: int, protocols: tuple[tuple[str, bytes], ...], session: int, restarts: bool
    ) -> None:
        if restarts:
            self.clients[number].member_id = ""
        self._join(number, protocols, session)

    def _join(self, number: int, protocols: tuple[tuple[str, bytes], ...], session: int) -> None:
        client = self.clients[number]
        client.join = self.rig.send_join(
            client.member_id,
            instance_id=client.instance_id,
            requires_member_id=client.instance_id is None and number % 2 == 0,
            can_skip_assignment=number % 2 == 0,
            protocols=protocols,
            session_timeout=session,
        )
        client.sync = None
        self.answers.append(client.join)
        self._read()

    @rule(numbers=st.sets(_INDEX, min_size=1), rounds=st.integers(1, 6))
    def behave(self, numbers: set[int], rounds: int) -> None:
        """Let these clients do what consumers do: join, sync, send heartbeats."""
        for _ in range(rounds):
            for number in sorted(numbers):
                client = self.clients[number]
                if client.waits:
                    continue
                if client.generation_id < 0:
                    self._join(number, PROTOCOLS, SESSION)
                elif not client.synced:
                    self._sync(client)
                elif self.rig.heartbeat(client.member_id, client.generation_id, client.instance_id):
                    client.generation_id = -1
            self.rig.advance(DELAY + 1)
            self._read()

    @rule(number=_INDEX)
    def sync(self, number: int) -> None:
        self._sync(self.clients[number])

    def _sync(self, client: _Client) -> None:
        assignments = {member: member.encode() for member in client.members} if client.leads else {}
        client.sync = self.rig.send_sync(
            client.generation_id, client.member_id, assignments, instance_id=client.instance_id
        )
        self.answers.append(client.sync)
        self._read()

    @rule(number=_INDEX)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        error = self.rig.heartbeat(client.member_id, client.generation_id, client.instance_id)
        if not error:
            assert self.rig.group().state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)

    @rule(number=_INDEX, offset=st.integers(0, 100), simple=st.booleans())
    def commit(self, number: int, offset: int, simple: bool) -> None:
        client = self.clients[number]
        fields: dict[str, object] = (
            {} if simple else {"generation_id": client.generation_id, "member_id": client.member_id}
        )
        answer = self.rig.send_commit(OffsetToCommit(FOO, offset), **fields)  # type: ignore[arg-type]
        self.answers.append(answer)
        if answer.given and answer.result == {FOO: ErrorCode.NONE}:
            assert self.rig.coordinator.fetch(GROUP, [FOO])[1][FOO].offset == offset

    @rule(number=_INDEX, by_admin=st.booleans())
    def leave(self, number: int, by_admin: bool) -> None:
        client = self.clients[number]
        member_id = "" if by_admin else client.member_id
        self.rig.coordinator.leave(GROUP, [LeavingMember(member_id, client.instance_id)])
        self._read()

    @rule(
        milliseconds=st.one_of(st.integers(0, 2 * DELAY), st.sampled_from([REBALANCE, SESSION, 3 * SESSION]))
    )
    def wait(self, milliseconds: int) -> None:
        self.rig.advance(milliseconds)
        self._read()

    @rule(error=st.sampled_from([0, 0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE]))
    def appends_end_with(self, error: int) -> None:
        self.rig.topic.error = error

    @precondition(lambda self: self.rig.topic.held is None)
    @rule()
    def appends_take_time(self) -> None:
        self.rig.topic.held = []

    @precondition(lambda self: self.rig.topic.held is not None)
    @rule(error=st.sampled_from([None, None, ErrorCode.REQUEST_TIMED_OUT]))
    def appends_end(self, error: int | None) -> None:
        self.rig.topic.release(error)
        self._read()

    @rule()
    def expire(self) -> None:
        self.rig.coordinator.expire_offsets()

    @rule()
    def delete(self) -> None:
        self.rig.coordinator.delete([GROUP])

    @rule(back=st.sampled_from([True] * 7 + [False]), really=st.sampled_from([False, False, True]))
    def leadership_goes(self, back: bool, really: bool) -> None:
        if not really:
            return
        self.epoch += 1
        self.rig.coordinator.resigned(self.partition, self.epoch)
        assert not any(isinstance(a, Answer) and not a.given for a in self._group_answers())
        self._read()
        if back:
            self.leadership_comes()

    @rule()
    def leadership_comes(self) -> None:
        self.rig.coordinator.elected(self.partition, self.epoch)

    def _group_answers(self) -> list[Answer[JoinResult] | Answer[SyncResult]]:
        waiting: list[Answer[JoinResult] | Answer[SyncResult]] = []
        for client in self.clients:
            waiting += [answer for answer in (client.join, client.sync) if answer is not None]
        return waiting

    @invariant()
    def no_request_has_two_answers(self) -> None:
        assert all(len(answer.results) <= 1 for answer in self.answers)

    @invariant()
    def the_group_is_whole(self) -> None:
        group = self.rig.coordinator._registry.find(GROUP)
        if group is None:
            return
        if group is not self.group:  # deleted, or loaded anew
            self.group, self.generation_id = group, group.generation_id
        with group.locked():
            assert group.generation_id >= self.generation_id
            self.generation_id = group.generation_id
            assert group.state is not GroupState.DEAD
            assert group.awaiting_join == sum(m.join_callback is not None for m in group.members.values())
            assert all(member.member_id == key for key, member in group.members.items())
            assert group.static_members == {
                member.instance_id: member.member_id
                for member in group.members.values()
                if member.instance_id is not None
            }
            assert not group.pending_members.keys() & group.members.keys()
            assert group.pending_sync <= group.members.keys()
            assert (group.leader_id is None) == (not group.members)
            assert group.leader_id is None or group.leader_id in group.members
            assert (group.state is GroupState.EMPTY) <= (not group.members)
            for member in group.members.values():
                # Somebody will notice when it falls silent.
                assert isinstance(member.session, _Timer)
                assert member.session.bucket is not None or member.waits
                if member.sync_callback is not None:
                    assert group.state is GroupState.COMPLETING_REBALANCE
                if member.join_callback is not None:
                    assert group.state is GroupState.PREPARING_REBALANCE or self.rig.topic.held is not None
            for name, count in group._supported.items():
                assert count == sum(name in member.protocol_names for member in group.members.values())
            if group.state is GroupState.PREPARING_REBALANCE or group.pending_sync:
                assert len(self.rig.coordinator._purgatory) >= 1

    @invariant()
    def members_of_a_stable_generation_have_their_assignment(self) -> None:
        group = self.rig.coordinator._registry.find(GROUP)
        for client in self.clients:
            if group is None or group.state is not GroupState.STABLE or client.waits:
                continue
            if client.generation_id != group.generation_id or client.member_id not in group.members:
                continue
            if self.rig.topic.held is not None:
                continue
            synced = self.rig.sync(group.generation_id, client.member_id, instance_id=client.instance_id)
            assert synced.error is ErrorCode.NONE
            assert synced.assignment == group.members[client.member_id].assignment

    @invariant()
    def one_client_leads(self) -> None:
        group = self.rig.coordinator._registry.find(GROUP)
        if group is None:
            return
        leaders = {
            client.member_id
            for client in self.clients
            if client.leads
            and client.generation_id == group.generation_id
            and client.member_id in group.members
            and not client.waits
        }
        # After a change of leadership the same generation may be given to other members.
        assert len(leaders) <= 1 or self.epoch > 1

    def teardown(self) -> None:
        rig = self.rig
        rig.topic.error = 0
        if rig.topic.held is not None:
            rig.topic.release()
        for _ in range(10):
            rig.advance(3 * SESSION)
        self._read()
        assert all(answer.given for answer in self.answers)
        group = rig.coordinator._registry.find(GROUP)
        assert group is None or (group.state is GroupState.EMPTY and not group.members)
        assert len(rig.coordinator._purgatory) == 0
        assert len(rig.timers) == 1  # of the expiration of offsets


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
