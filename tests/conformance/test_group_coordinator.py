"""Random members do the same to Kafka's group coordinator and to ours: answers and records are the same.

Kafka's runs on a clock that stands still between commands (GroupOracle.java). Member ids are random: they are
compared by their prefixes, and by the order in which they were first seen. These are not compared:

- Which member follows a leader that left. Kafka takes any of a hash table; ours is given its choice. Where
  an answer of the same step shows it already, the history ends.
- The protocol, when two have as many votes: Kafka takes any.
- Requests that Kafka never answers, because a later request of the same member took their place or the
  member is gone. Ours end with an error.
- A static member that joins again while its new id is being stored: Kafka answers with the id before. When
  the group changes meanwhile, Kafka throws as the append ends: the history ends, too.
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import BatchProducer, Record
from ctrlchan.broker.coordinator.group.records import GroupKey, read_group_value, read_key
from ctrlchan.broker.coordinator.group.requests import (
    NO_RETENTION,
    CommitRequest,
    FetchedOffset,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
    TransactionalCommitRequest,
)
from ctrlchan.broker.coordinator.record_batches import encode_batch, read_batches
from ctrlchan.errors import ErrorCode, IllegalStateError
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka
from tests.unit.broker.coordinator.support import CONFIG, START_MS, MemoryTopic, Rig
from tests.unit.broker.log.batches import PlainRecord, batch_of

GROUP: Final = "group"
TOPICS: Final = ("foo", "bar")
PRODUCERS: Final = (1000, 2000)
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
CLIENTS: Final = 5
STATIC: Final = 2
#: Times that seldom end together.
SESSIONS: Final = (501, 1_013)
REBALANCE: Final = 707
DELAY: Final = 53
RETENTION: Final = 60_000

_CONFIG = replace(
    CONFIG,
    max_size=3,
    initial_rebalance_delay=DELAY,
    offsets_topic_partitions=1,
    offsets_retention=RETENTION,
)
_SETTINGS = {
    "group.max.size": "3",
    "group.initial.rebalance.delay.ms": str(DELAY),
    "group.min.session.timeout.ms": str(CONFIG.min_session_timeout),
    "group.max.session.timeout.ms": str(CONFIG.max_session_timeout),
    "offsets.retention.minutes": str(RETENTION // 60_000),
}
#: A subscription of "foo", one of both topics, and bytes that are none.
_FOO, _BOTH, _OTHER = (
    b"\0\1\0\0\0\1\0\3foo\xff\xff\xff\xff",
    b"\0\0\0\0\0\2\0\3foo\0\3bar\0\0\0\0",
    b"other",
)
_PROTOCOLS: Final = (
    (("range", _FOO),),
    (("range", _BOTH), ("roundrobin", _OTHER)),
    (("roundrobin", _FOO),),
    (("range", _OTHER),),
)
_UUID_LENGTH: Final = 36

Reply = dict[str, Any]


class _Names:
    """Member ids of one side, by prefix and order: "c3-9f…" is "c3#1"."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = defaultdict(int)

    def name(self, member_id: str | None) -> str | None:
        if member_id is None or len(member_id) <= _UUID_LENGTH:
            return member_id
        if member_id not in self._names:
            prefix = member_id[: -_UUID_LENGTH - 1]
            self._counts[prefix] += 1
            name = self._names[member_id] = f"{prefix}#{self._counts[prefix]}"
            self._ids[name] = member_id
        return self._names[member_id]

    def id(self, name: str) -> str:
        return self._ids.get(name, name)


class _Side(ABC):
    """Calls a coordinator with names of members in place of their ids."""

    def __init__(self) -> None:
        self.names = _Names()

    @abstractmethod
    def command(self, words: list[Any]) -> Reply:
        """Give a command to the coordinator; return its reply."""

    def ask(self, *words: Any) -> Reply:
        """Give a command; return its reply, in which members have names and no order."""
        kind = words[0]
        sent = list(words)
        place = {"join": 3, "sync": 4, "heartbeat": 3, "commit": 4, "commitInTransaction": 4}.get(kind)
        if place is not None:
            sent[place] = self.names.id(sent[place])
        if kind == "sync":
            sent[8] = {self.names.id(name): assignment for name, assignment in sent[8].items()}
        if kind == "leave":
            sent[2] = [[self.names.id(name), instance] for name, instance in sent[2]]
        reply = self.command(sent)
        name = self.names.name
        answers = {int(number): answer for number, answer in sorted(reply["answers"].items(), key=_number)}
        joins = [answer for answer in answers.values() if isinstance(answer, list) and len(answer) == 8]
        for answer in joins:
            answer[1] = name(answer[1])
        for answer in joins:
            answer[5] = name(answer[5])
            answer[7] = sorted([name(member), *rest] for member, *rest in answer[7])
        result = reply["result"]
        if kind == "describe":
            members = sorted(result[4], key=lambda member: (member[1] or "", member[2]))
            result[4] = [[name(member[0]), *member[1:]] for member in members]
        elif kind == "leader":
            result = name(result)
        elif kind == "list":
            result.sort()
        appended = sorted(self._record(*map(_bytes, record)) for record in reply["appended"])
        return {"failed": "error" in reply, "result": result, "answers": answers, "appended": appended}

    def _record(self, key: bytes | None, value: bytes | None) -> tuple[bytes, str]:
        assert key is not None
        if value is None or not isinstance(read_key(key), GroupKey):
            return key, "" if value is None else value.hex()
        group = read_group_value(value)
        members = sorted(
            (each._replace(member_id=str(self.names.name(each.member_id))) for each in group.members),
            key=lambda member: member.member_id,
        )
        return key, repr(group._replace(members=tuple(members), leader_id=self.names.name(group.leader_id)))


def _number(item: tuple[str, Any]) -> int:
    return int(item[0])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class _Kafka(_Side):
    """GroupOracle.java, which describes the commands."""

    def __init__(self, process: JavaProcess) -> None:
        super().__init__()
        self._java = process

    def command(self, words: list[Any]) -> Reply:
        reply: Reply = json.loads(self._java.ask(json.dumps(words)))
        reply.setdefault("result", None)
        return reply


class _Ours(_Side):
    """The same commands for our coordinator."""

    def __init__(self, topic: MemoryTopic | None = None) -> None:
        super().__init__()
        self.topic = topic or MemoryTopic()
        self.rig = Rig(_CONFIG, self.topic)
        self._answers: dict[str, Any] = {}
        self._epoch = 1
        self._seen = 0

    def command(self, words: list[Any]) -> Reply:
        self._answers = {}
        reply: Reply = {"result": None}
        try:
            reply["result"] = getattr(self, f"_{words[0]}")(*words[1:])
        except IllegalStateError as error:
            reply["error"] = str(error)
        records = [record for _, batch, _, _ in self.topic.appended[self._seen :] for record in batch]
        self._seen = len(self.topic.appended)
        appended = [[key.hex(), None if value is None else value.hex()] for key, value in records]
        return reply | {"answers": self._answers, "appended": appended}

    def _join(
        self,
        number: int,
        group: str,
        member: str,
        instance: str | None,
        requires: bool,
        skip: bool,
        client: str,
        session: int,
        rebalance: int,
        kind: str,
        protocols: list[list[str]],
    ) -> None:
        def answer(result: JoinResult) -> None:
            assert str(number) not in self._answers
            self._answers[str(number)] = [
                int(result.error),
                result.member_id,
                result.generation_id,
                result.protocol_type,
                result.protocol_name,
                result.leader_id,
                result.skip_assignment,
                [[each.member_id, each.instance_id, each.metadata.hex()] for each in result.members],
            ]

        request = JoinRequest(
            group,
            member,
            client,
            "/127.0.0.1",
            session,
            rebalance,
            kind,
            tuple((name, bytes.fromhex(metadata)) for name, metadata in protocols),
            instance,
            requires,
            skip,
        )
        self.rig.coordinator.join(request, answer)

    def _sync(
        self,
        number: int,
        group: str,
        generation: int,
        member: str,
        instance: str | None,
        kind: str | None,
        protocol: str | None,
        assignments: dict[str, str],
    ) -> None:
        def answer(result: SyncResult) -> None:
            self._answers[str(number)] = [
                int(result.error),
                result.protocol_type,
                result.protocol_name,
                result.assignment.hex(),
            ]

        assigned = {name: bytes.fromhex(assignment) for name, assignment in assignments.items()}
        request = SyncRequest(group, generation, member, instance, kind, protocol, assigned)
        self.rig.coordinator.sync(request, answer)

    def _heartbeat(self, group: str, generation: int, member: str, instance: str | None) -> int:
        return int(self.rig.heartbeat(member, generation, instance, group))

    def _leave(self, group: str, members: list[list[str]]) -> list[Any]:
        result = self.rig.coordinator.leave(group, [LeavingMember(*member) for member in members])
        return [int(result.error), [int(member.error) for member in result.members]]

    def _commit(
        self,
        number: int,
        group: str,
        generation: int,
        member: str,
        instance: str | None,
        offsets: list[list[Any]],
        producer_id: int | None = None,
    ) -> None:
        def answer(errors: dict[TopicPartition, ErrorCode]) -> None:
            self._answers[str(number)] = {_partition(each): int(error) for each, error in errors.items()}

        [expires] = {row[4] for row in offsets}
        retention = NO_RETENTION if expires is None else expires - START_MS - self.rig.now
        committed = [
            OffsetToCommit(TopicPartition(topic, partition), offset, -1, metadata)
            for topic, partition, offset, metadata, _ in offsets
        ]
        if producer_id is None:
            request = CommitRequest(group, committed, generation, member, instance, retention)
            self.rig.coordinator.commit(request, answer)
        else:
            self.rig.coordinator.commit_in_transaction(
                TransactionalCommitRequest(
                    "a transactional id", group, producer_id, 0, committed, generation, member, instance
                ),
                answer,
            )

    def _end(self, producer_id: int, commits: bool) -> None:
        self.rig.end_transaction(commits=commits, producer_id=producer_id, group_id=GROUP)

    _commitInTransaction = _commit  # noqa: N815 - the name of the command

    def _fetch(self, group: str, stable: bool, partitions: list[list[Any]] | None) -> list[Any]:
        wanted = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
        error, found = self.rig.coordinator.fetch(group, wanted, require_stable=stable)
        return [int(error), {_partition(each): _fetched(offset) for each, offset in found.items()}]

    def _deleteOffsets(self, group: str, partitions: list[list[Any]]) -> list[Any]:  # noqa: N802
        error, errors = self.rig.coordinator.delete_offsets(
            group, [TopicPartition(*one) for one in partitions]
        )
        return [int(error), {_partition(each): int(code) for each, code in errors.items()}]

    def _describe(self, group: str) -> list[Any]:
        summary = self.rig.coordinator.describe(group)
        members = [
            [each.member_id, each.instance_id, each.client_id, each.metadata.hex(), each.assignment.hex()]
            for each in summary.members
        ]
        return [int(summary.error), summary.state, summary.protocol_type, summary.protocol, members]

    def _list(self) -> list[list[str]]:
        return [list(group[:3]) for group in self.rig.coordinator.list_groups()[1]]

    def _delete(self, groups: list[str]) -> dict[str, int]:
        return {group: int(error) for group, error in self.rig.coordinator.delete(groups).items()}

    def _expire(self) -> None:
        self.rig.coordinator.expire_offsets()

    def _advance(self, milliseconds: int) -> None:
        self.rig.advance(milliseconds)

    def _error(self, name: str) -> None:
        self.topic.error = ErrorCode[name]

    def _hold(self) -> None:
        if self.topic.held is None:
            self.topic.held = []

    def _release(self, name: str) -> None:
        if self.topic.held is not None:
            self.topic.release(ErrorCode[name] or None)

    def _reload(self) -> None:
        self._epoch += 1
        self.rig.coordinator.resigned(0, self._epoch)
        self._epoch += 1
        self.rig.coordinator.elected(0, self._epoch)

    def _leader(self, group_id: str) -> str | None:
        group = self.rig.coordinator._registry.find(group_id)
        return None if group is None else group.leader_id

    def log(self) -> Iterator[bytes]:
        """The batches that were appended, with their offsets."""
        offset = 0
        for stored in self.topic.batches.get(0, []):
            if stored.commits is not None:
                batch = _marker(stored.producer_id, stored.commits)
            else:
                records = [Record(key or b"", value) for key, value in stored.records]
                producer = BatchProducer(stored.producer_id, 0) if stored.transactional else None
                batch = encode_batch(records, START_MS, producer)
            # The offset is not in the checksum.
            yield offset.to_bytes(8, "big") + batch[8:]
            offset += max(1, len(stored.records))

    def take_leader(self, name: str) -> None:
        """Let the member of this name lead GROUP."""
        group = self.rig.group(GROUP)
        leader_id = self.names.id(name)
        assert leader_id in group.members
        group.leader_id = leader_id


def _marker(producer_id: int, commits: bool) -> bytes:
    record = PlainRecord(0, key=struct.pack(">hh", 0, commits), value=struct.pack(">hi", 0, 0))
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": -1}
    return batch_of([record], attributes=_TRANSACTIONAL | _CONTROL, **fields).encoded()


def _partition(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _fetched(offset: FetchedOffset) -> list[Any]:
    return [offset.offset, offset.metadata, int(offset.error)]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    require_kafka()
    process = JavaProcess("GroupOracle")
    yield process
    process.close()


@dataclass
class _Client:
    """A consumer. ``member`` is its name."""

    instance: str | None
    member: str = ""
    generation: int = -1
    leads: bool = False
    protocols: int = 0
    protocol: str | None = None
    members: tuple[str, ...] = ()
    join: int | None = None
    sync: int | None = None
    synced: bool = False


class _EndOfHistory(Exception):
    """Kafka has made a choice that ours cannot know."""


class _History:
    """Gives each command to both coordinators, and compares their replies."""

    def __init__(self, process: JavaProcess) -> None:
        self.kafka, self.ours = _Kafka(process), _Ours()
        self.kafka.command(["new", _SETTINGS])
        self.clients = [_Client(f"static-{number}" if number < STATIC else None) for number in range(CLIENTS)]
        self.requests = 0
        # Producers and topics with offsets in an open transaction.
        self.in_transactions: set[tuple[int, int]] = set()
        # Requests that ours has answered and Kafka has not.
        self.ended: set[int] = set()

    def both(self, *words: Any) -> Reply:
        expected, found = self.kafka.ask(*words), self.ours.ask(*words)
        if words[0] == "release" and expected["failed"]:
            assert not found["failed"]
            raise _EndOfHistory
        answers, more = expected["answers"], found["answers"]
        for number, answer in more.items():
            if number not in answers:
                assert answer[0], (words, answer)
                self.ended.add(number)
        assert not self.ended & answers.keys(), words
        shared = {number: answer for number, answer in more.items() if number in answers}
        for number, answer in answers.items():
            mine = shared.get(number)
            if isinstance(answer, list) and len(answer) == 8 and mine is not None and not mine[0]:
                same_error = mine[0] == answer[0]
                if same_error and (mine[5] != answer[5] or mine[4] != answer[4]):
                    raise _EndOfHistory
        assert {**found, "answers": shared} == expected, words
        self._read(answers)
        self._agree_on_leader()
        return expected

    def _agree_on_leader(self) -> None:
        # Descriptions show the ids of all members, which get their names in the same order.
        assert self.kafka.ask("describe", GROUP) == self.ours.ask("describe", GROUP)
        leader = self.kafka.ask("leader", GROUP)["result"]
        if leader is not None and self.ours.ask("leader", GROUP)["result"] != leader:
            self.ours.take_leader(leader)

    def _read(self, answers: dict[int, Any]) -> None:
        for client in self.clients:
            if client.join in answers:
                error, member, generation, _, protocol, leader, _, members = answers[client.join]
                client.join = None
                client.member, client.synced = member, False
                client.generation = -1 if error else generation
                client.leads, client.protocol = not error and leader == member, protocol
                client.members = tuple(row[0] for row in members)
                if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    client.member = ""
            if client.sync in answers:
                error = answers[client.sync][0]
                client.sync, client.synced = None, not error
                if error:
                    client.generation = -1
                if error == ErrorCode.UNKNOWN_MEMBER_ID:
                    client.member = ""

    def _next(self) -> int:
        self.requests += 1
        return self.requests

    # Steps

    def join(self, number: int, protocols: int, session: int, restarts: bool) -> None:
        client = self.clients[number]
        if client.instance is not None and client.join is not None and self.ours.topic.held is not None:
            return
        if restarts:
            client.member = ""
        client.protocols = protocols
        request = client.join = self._next()
        client.sync = None
        self.both(
            "join",
            request,
            GROUP,
            client.member,
            client.instance,
            client.instance is None and number % 2 == 0,
            number % 2 == 0,
            f"c{request}",
            SESSIONS[session],
            REBALANCE,
            "consumer",
            [[name, metadata.hex()] for name, metadata in _PROTOCOLS[protocols]],
        )

    def rejoin(self, number: int) -> None:
        """Join as before: the client has not read an answer, or wants a rebalance."""
        self.join(number, self.clients[number].protocols, 0, False)

    def sync(self, number: int) -> None:
        client = self.clients[number]
        request = client.sync = self._next()
        assigned = {name: name.encode().hex() for name in client.members[:2]} if client.leads else {}
        self.both(
            "sync",
            request,
            GROUP,
            client.generation,
            client.member,
            client.instance,
            "consumer" if number % 2 else None,
            client.protocol if number % 2 else None,
            assigned,
        )

    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        words = ("heartbeat", GROUP, client.generation, client.member, client.instance)
        if self.both(*words)["result"]:
            client.generation = -1

    def behave(self, numbers: set[int], rounds: int, protocols: int) -> None:
        """Let these clients do what consumers do."""
        for _ in range(rounds):
            for number in sorted(numbers):
                client = self.clients[number]
                if client.join is not None or client.sync is not None:
                    continue
                if client.generation < 0:
                    self.join(number, protocols, 0, False)
                elif not client.synced:
                    self.sync(number)
                else:
                    self.heartbeat(number)
            self.both("advance", DELAY + 1)

    def commit(self, number: int, simple: bool, topic: int, offset: int, expires: int | None) -> None:
        client = self.clients[number]
        who = (-1, "", None) if simple else (client.generation, client.member, client.instance)
        time = None if expires is None else START_MS + self.ours.rig.now + expires
        offsets = [[TOPICS[topic], partition, offset, "m", time] for partition in range(2)]
        self.both("commit", self._next(), GROUP, *who, offsets)

    def commit_in_transaction(
        self, number: int, simple: bool, topic: int, offset: int, producer_id: int
    ) -> None:
        """Commit the offsets of a topic once in a transaction.

        If a second commit fails, Kafka forgets the first one, too, and has it again after the next loading.
        """
        if (producer_id, topic) in self.in_transactions:
            return
        self.in_transactions.add((producer_id, topic))
        client = self.clients[number]
        who = (-1, "", None) if simple else (client.generation, client.member, client.instance)
        offsets = [[TOPICS[topic], partition, offset, "m", None] for partition in range(2)]
        self.both("commitInTransaction", self._next(), GROUP, *who, offsets, producer_id)

    def end(self, producer_id: int, commits: bool) -> None:
        """End a transaction. Kafka throws when an append before the marker has not ended yet."""
        if self.ours.topic.held is None:
            self.both("end", producer_id, commits)
            self.in_transactions -= {(producer_id, topic) for topic in range(2)}

    def outdate(self, number: int, simple: bool, topic: int, expires: int) -> None:
        """Commit offsets that soon expire, while the members live on."""
        members = [each for each in range(CLIENTS) if self.clients[each].synced]
        self.commit(members[number % len(members)] if members else number, simple, topic, 7, expires)
        self.behave(set(members), 2, 0)
        self.both("expire")

    def leave(self, number: int, by_admin: bool) -> None:
        client = self.clients[number]
        self.both("leave", GROUP, [["" if by_admin else client.member, client.instance]])

    def delete_offsets(self, topic: int) -> None:
        self.both("deleteOffsets", GROUP, [[TOPICS[topic], 0]])

    def exchange_logs(self) -> None:
        """Load each coordinator's log with the other one: they show the same of it."""
        self.both("release", "NONE")
        self.both("reload")
        shown = self._shown(self.kafka), self._shown(self.ours)
        batches = [bytes.fromhex(batch) for batch in self.kafka.command(["log"])["result"]]
        topic = MemoryTopic({0: [stored for batch in batches for _, stored in read_batches(batch)]})
        loaded = _Ours(topic)
        loaded.names = self.kafka.names
        assert self._shown(loaded) == shown[0]
        self.kafka.command(["load", _SETTINGS, [batch.hex() for batch in self.ours.log()]])
        self.kafka.names = self.ours.names
        assert self._shown(self.kafka) == shown[1]

    @staticmethod
    def _shown(side: _Side) -> list[Reply]:
        return [side.ask("describe", GROUP), side.ask("list"), side.ask("fetch", GROUP, True, None)]

    def look(self) -> None:
        """Compare what clients can see of the groups."""
        self.both("list")
        self.both("fetch", GROUP, True, None)
        self.both("fetch", GROUP, False, [["foo", 1], ["none", 0]])


_CLIENT = st.integers(0, CLIENTS - 1)
_TIMES = st.integers(1, 3 * DELAY) | st.sampled_from([REBALANCE, 2 * SESSIONS[0], 400_000])
_ERRORS = ["NONE", "NONE", "NONE", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "MESSAGE_TOO_LARGE"]
_BEHAVE = st.tuples(
    st.just("behave"), st.sets(_CLIENT, min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 1)
)
_STEP = st.one_of(
    _BEHAVE,
    _BEHAVE,
    st.tuples(
        st.just("join"), _CLIENT, st.sampled_from([0, 0, 1, 1, 2, 3]), st.integers(0, 1), st.booleans()
    ),
    st.tuples(st.just("rejoin"), _CLIENT),
    st.tuples(st.just("sync"), _CLIENT),
    st.tuples(st.just("heartbeat"), _CLIENT),
    st.tuples(
        st.just("commit"),
        _CLIENT,
        st.booleans(),
        st.integers(0, 1),
        st.integers(0, 99),
        st.none() | st.integers(1, 200),
    ),
    st.tuples(
        st.just("commit_in_transaction"),
        _CLIENT,
        st.booleans(),
        st.integers(0, 1),
        st.integers(0, 99),
        st.sampled_from(PRODUCERS),
    ),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("outdate"), _CLIENT, st.booleans(), st.integers(0, 1), st.integers(1, 150)),
    st.tuples(st.just("leave"), _CLIENT, st.booleans()),
    st.tuples(st.just("delete_offsets"), st.integers(0, 1)),
    st.tuples(st.just("both"), st.just("advance"), _TIMES),
    st.tuples(st.just("both"), st.just("error"), st.sampled_from(_ERRORS)),
    st.tuples(st.just("both"), st.sampled_from(["reload", "expire", "expire"])),
    st.tuples(st.just("both"), st.just("delete"), st.just([GROUP])),
    st.tuples(st.just("both"), st.just("hold")),
    st.tuples(st.just("both"), st.just("release"), st.sampled_from(["NONE", "NONE", "REQUEST_TIMED_OUT"])),
)


#: Members of a Stable group, most of the time, and what happens then.
_STEPS = st.builds(
    lambda first, steps: [first, *steps],
    st.tuples(st.just("behave"), st.sets(_CLIENT, min_size=2, max_size=3), st.just(8), st.integers(0, 1)),
    st.lists(_STEP, min_size=12, max_size=40),
)
_NO_LIMIT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def compare(java: JavaProcess, steps: list[tuple[Any, ...]]) -> None:
    """Let members take these steps; then load each log with the other coordinator."""
    history = _History(java)
    with suppress(_EndOfHistory):
        for name, *arguments in steps:
            getattr(history, name)(*arguments)
            history.look()
        history.exchange_logs()


#: The new id of a static member is stored only after the next rebalance has begun.
_LATE = [("behave", {1, 2}, 8, 0), ("both", "hold"), ("join", 1, 0, 0, True), ("join", 0, 0, 0, False)]


@settings(_NO_LIMIT, max_examples=40)
@example(steps=_LATE)
@given(steps=_STEPS)
def test_random_histories(java: JavaProcess, steps: list[tuple[Any, ...]]) -> None:
    compare(java, steps)


@pytest.mark.long
@settings(_NO_LIMIT, max_examples=600)
@given(steps=_STEPS)
def test_many_random_histories(java: JavaProcess, steps: list[tuple[Any, ...]]) -> None:
    compare(java, steps)
