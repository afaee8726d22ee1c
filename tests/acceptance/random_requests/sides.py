"""Sends each request to both brokers, and compares what they answer."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from tests.acceptance.random_requests.exceptions import EXCEPTIONS
from tests.acceptance.random_requests.values import Names, resolved
from tests.acceptance.same_answers.both import Both
from tests.acceptance.same_answers.recorder import Broker, differences
from tests.acceptance.same_answers.topics import create_topic

__all__ = ["Sides"]

#: A request that neither broker has answered after so many seconds waits for another one.
_NO_ANSWER: Final = 1.0
#: How long the slower broker may take, in seconds.
_SLOW: Final = 10.0
_OF_TOPICS: Final = frozenset(
    {"CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments"}
)
_OF_TRANSACTIONS: Final = frozenset({"InitProducerId", "EndTxn", "WriteTxnMarkers"})
_UNKNOWN_TOPIC: Final = 3
_LOADING: Final = 14
#: Arrays in the order of a hash map of the JVM that has a history, and what their elements are sorted by.
_UNORDERED: Final = {
    "AlterClientQuotas": {"Entity": "EntityType"},
    "AlterPartitionReassignments": {"Responses": "Name", "Partitions": "PartitionIndex"},
    "AlterUserScramCredentials": {"Results": "User"},
    "DeleteRecords": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "DescribeClientQuotas": {"Entries": "Entity", "Values": "Key"},
    "DescribeUserScramCredentials": {"Results": "User"},
    "Metadata": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "OffsetCommit": {"Topics": "Name"},
    "UpdateFeatures": {"Results": "Feature"},
}


#: Fields with a text of Kafka's documentation.
_TEXTS: Final = frozenset({"Documentation"})
#: A topic that is being deleted.
_INVALID_TOPIC: Final = 17


class _Side:
    """One broker, with the ids that it has given out in this chunk."""

    def __init__(self, broker: Broker, names: Names) -> None:
        self.broker = broker
        self._names = names
        self._members: list[str] = []
        self._producers: list[int] = []
        self._sessions: list[int] = []
        self._topics: dict[str, uuid.UUID] = {}
        #: The ids that requests have named.
        self._asked: dict[uuid.UUID, str] = {}

    def topic_id(self, name: str) -> uuid.UUID:
        # Each absent topic has another unknown id.
        found = self._topics.get(name, uuid.uuid5(uuid.NAMESPACE_DNS, name))
        self._asked[found] = name
        return found

    def with_topics_in_order(self, api: str, answer: Any) -> Any:
        """Return a Fetch answer with its topics and partitions in order; others as they are.

        Kafka puts partitions with some errors behind the others.
        """
        if api != "Fetch":
            return answer
        topics: dict[Any, Any] = {}
        for topic in answer["Responses"]:
            topic_id = topic.get("TopicId")
            name = topic.get("Topic") if topic_id is None else self._asked.get(topic_id, "")
            topics.setdefault((name, topic_id), {**topic, "Partitions": []})["Partitions"] += topic[
                "Partitions"
            ]
        for topic in topics.values():
            topic["Partitions"].sort(key=lambda one: one["PartitionIndex"])
        return {**answer, "Responses": [topics[key] for key in sorted(topics, key=lambda one: one[0])]}

    def member(self, number: int) -> str:
        return self._members[-1 - number % len(self._members)] if self._members else "no member"

    def producer(self, number: int) -> int:
        return self._producers[-1 - number % len(self._producers)] if self._producers else -1

    def session(self, number: int) -> int:
        return self._sessions[-1 - number % len(self._sessions)] if self._sessions else 0

    def learn(self, api: str, answer: Any) -> None:
        """Keep the ids of an answer for later requests; ``answer`` None: there was none."""
        if answer is None:
            return
        if api == "JoinGroup" and answer["MemberId"] and answer["MemberId"] not in self._members:
            self._members.append(answer["MemberId"])
        if api == "InitProducerId" and answer["ProducerId"] >= 0:
            self._producers.append(answer["ProducerId"])
        if api == "Fetch" and answer.get("SessionId") and answer["SessionId"] not in self._sessions:
            self._sessions.append(answer["SessionId"])

    def look_at_topics(self) -> dict[str, int] | None:
        """Return how many partitions each topic has; None while one has no leader that serves."""
        found: dict[str, int] = {}
        self._topics.clear()
        answer = self.broker.look("Metadata", 12, Topics=[{"Name": name} for name in self._names.all_topics])
        for topic in answer["Topics"]:
            if topic["ErrorCode"] == _UNKNOWN_TOPIC:
                continue
            leaders = [one["LeaderId"] for one in topic["Partitions"]]
            if topic["ErrorCode"] or leaders != [1] * len(leaders):
                return None
            found[topic["Name"]] = len(leaders)
            self._topics[topic["Name"]] = topic["TopicId"]
        asked = [
            {"Name": name, "Partitions": [{"PartitionIndex": i, "Timestamp": -2} for i in range(count)]}
            for name, count in found.items()
        ]
        answer = self.broker.look("ListOffsets", 9, ReplicaId=-1, Topics=asked)
        errors = {one["ErrorCode"] for topic in answer["Topics"] for one in topic["Partitions"]}
        absent = [{"Name": name, "Count": 1} for name in self._names.all_topics if name not in found]
        answer = self.broker.look("CreatePartitions", 3, Topics=absent, TimeoutMs=1000, ValidateOnly=True)
        is_deleting = any(one["ErrorCode"] == _INVALID_TOPIC for one in answer["Results"])
        return found if errors <= {0} and not is_deleting else None

    def look_at_transactions(self) -> bool | None:
        """Return True when no transaction waits for its markers, else None."""
        states = ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"]
        answer = self.broker.look("ListTransactions", 1, StateFilters=states, DurationFilter=-1)
        return None if answer["TransactionStates"] else True


class Sides:
    """Both brokers during one chunk."""

    def __init__(self, both: Both, names: Names) -> None:
        self._names = names
        self._both = both
        self._sides = (_Side(both.kafka, names), _Side(both.ours, names))
        for side in self._sides:
            side.broker.unordered, side.broker.blanks = _UNORDERED, _TEXTS
            side.broker.rearrange = side.with_topics_in_order
            side.broker.forget_names()

    def __enter__(self) -> Sides:
        for side in self._sides:
            for name, partitions in self._names.topics.items():
                more = {"cleanup_policy": "compact"} if name.endswith("compact") else {}
                create_topic(side.broker, name, partitions, **more)
            side.look_at_topics()
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._sides:
            asked = [{"Name": name} for name in self._names.all_topics]
            side.broker.look("DeleteTopics", 6, Topics=asked, TimeoutMs=30_000)
            side.broker.answers.clear()

    def ask(self, api: str, version: int, values: Any) -> str | None:
        """Send a request to both; return how their answers differ, or None."""
        own = [resolved(values, side) for side in self._sides]
        begun = [side.broker.start(api, version, **one) for side, one in zip(self._sides, own, strict=True)]
        answered = [one.is_answered(_NO_ANSWER) for one in begun]
        if any(answered):
            answered = [one.is_answered(_SLOW) for one in begun]
        for side, connection, one, is_answered in zip(self._sides, begun, own, answered, strict=True):
            side.broker.answers.clear()
            if is_answered:
                answer = side.broker.receive(connection, api, version, **one)
                while api == "InitProducerId" and answer is not None and answer["ErrorCode"] == _LOADING:
                    # Kafka's broker asks its controller for more producer ids.
                    side.broker.answers.clear()
                    time.sleep(0.02)
                    answer = side.broker.ask(api, version, **one)
                side.learn(api, answer)
            else:
                side.broker.leave(api, version, **one)
        found = [
            one
            for one in differences(self._both.kafka.answers, self._both.ours.answers)
            if not self._is_excepted(one)
        ]
        if found:
            return found[0]
        if api in _OF_TOPICS:
            return self._settle("topics", _Side.look_at_topics)
        if api in _OF_TRANSACTIONS:
            return self._settle("transactions", _Side.look_at_transactions)
        return None

    def _is_excepted(self, difference: str) -> bool:
        reasons = {pattern for pattern in EXCEPTIONS if re.fullmatch(pattern, difference, re.DOTALL)}
        self._both.excepted |= reasons
        return bool(reasons)

    def _settle(self, what: str, look: Callable[[_Side], Any]) -> str | None:
        """Wait until both brokers have done what was asked; return how they differ then, or None."""
        deadline = time.monotonic() + _SLOW
        while True:
            found = [look(side) for side in self._sides]
            if None not in found and found[0] == found[1]:
                return None
            if time.monotonic() > deadline:
                return f"{what} afterwards: Kafka {found[0]}, ours {found[1]}"
            time.sleep(0.02)
