"""The requests of transactional producers, and those that look at transactions."""

from __future__ import annotations

from typing import Any, Final

from tests.acceptance.same_answers import grouping
from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic, one_produce, plain
from tests.unit.broker.log.batches import TRANSACTIONAL

__all__ = [
    "added_partitions",
    "ended_transactions",
    "fenced_producers",
    "looked_at_transactions",
    "producers_of_transactions",
    "ready",
    "transaction_coordinators",
    "transactional_offsets",
    "transactional_records",
    "written_markers",
]

_TRANSACTIONS: Final = 1
#: The longest that Kafka takes: no transaction is aborted while the scripts run.
_TIMEOUT_MS: Final = 900_000
_NOBODY: Final = 424_242
#: Produce: before it only records of format 0 and 1 could be produced.
_FORMAT_2_FROM: Final = 3
#: AddPartitionsToTxn: brokers send it.
_OF_BROKERS_FROM: Final = 4


def ready(broker: Broker) -> None:
    """Wait until the broker is the coordinator of all transactions, and has loaded them."""
    grouping.ready(broker)
    broker.wait(
        lambda answer: answer["ErrorCode"] == 0, "FindCoordinator", 3, Key="any", KeyType=_TRANSACTIONS
    )
    broker.wait(lambda answer: answer["ErrorCode"] == 0, "ListTransactions", 0)
    # A broker asks the controller for its first ids when it needs them.
    no_id = {"TransactionalId": None, "TransactionTimeoutMs": 1000}
    broker.wait(lambda answer: answer["ErrorCode"] == 0, "InitProducerId", 2, **no_id)


def _init(broker: Broker, name: str, version: int = 4, **fields: Any) -> dict[str, Any]:
    """Initialise a producer; return what its other requests begin with."""
    answer = broker.ask(
        "InitProducerId",
        version,
        **{
            "TransactionalId": name,
            "TransactionTimeoutMs": _TIMEOUT_MS,
            "ProducerId": -1,
            "ProducerEpoch": -1,
        }
        | fields,
    )
    return {
        "TransactionalId": name,
        "ProducerId": answer["ProducerId"],
        "ProducerEpoch": answer["ProducerEpoch"],
    }


def _add(broker: Broker, version: int, producer: dict[str, Any], topics: list[Any], **fields: Any) -> None:
    """Ask a version of clients or of brokers."""
    one = producer | {"Topics": topics, "VerifyOnly": False} | fields
    if version >= _OF_BROKERS_FROM:
        broker.ask("AddPartitionsToTxn", version, Transactions=[one])
    else:
        broker.ask(
            "AddPartitionsToTxn",
            version,
            **{f"V3AndBelow{name}": value for name, value in one.items() if name != "VerifyOnly"},
        )


def _wait_for(broker: Broker, name: str, state: str) -> None:
    """Wait until a transaction has a state: until its markers are written."""
    broker.wait(
        lambda answer: answer["TransactionStates"][0]["TransactionState"] == state,
        "DescribeTransactions",
        0,
        TransactionalIds=[name],
    )


def _describe(broker: Broker, *names: str) -> None:
    for version in broker.versions["DescribeTransactions"]:
        broker.ask("DescribeTransactions", version, TransactionalIds=list(names))


def _end(broker: Broker, producer: dict[str, Any], commit: bool, version: int = 3, **fields: Any) -> None:
    broker.ask("EndTxn", version, **producer | {"Committed": commit} | fields)


def _one(topic: str, *partitions: int) -> list[Any]:
    return [{"Name": topic, "Partitions": list(partitions)}]


def _wrong_producers(producer: dict[str, Any]) -> list[dict[str, Any]]:
    epoch = producer["ProducerEpoch"]
    return [
        producer | {"ProducerEpoch": epoch + 1},
        producer | {"ProducerEpoch": epoch - 1},
        producer | {"ProducerEpoch": -1},
        producer | {"ProducerId": _NOBODY},
        producer | {"ProducerId": -1},
        producer | {"TransactionalId": "no such id"},
        producer | {"TransactionalId": ""},
    ]


def transaction_coordinators(broker: Broker) -> None:
    """Who is the coordinator of a transaction."""
    ready(broker)
    for version in broker.versions["FindCoordinator"]:
        for key in ("transaction", "", "ü"):
            broker.ask("FindCoordinator", version, Key=key, KeyType=_TRANSACTIONS, CoordinatorKeys=[key])
        broker.ask(
            "FindCoordinator", version, Key="a", KeyType=_TRANSACTIONS, CoordinatorKeys=["a", "b", "a"]
        )


def producers_of_transactions(broker: Broker) -> None:
    """InitProducerId with a transactional id."""
    ready(broker)
    for version in broker.versions["InitProducerId"]:
        name = f"init-{version}"
        for timeout in (0, -1, 900_001, 2**31 - 1):
            broker.ask("InitProducerId", version, TransactionalId=name, TransactionTimeoutMs=timeout)
        first = _init(broker, name, version)
        _init(broker, name, version)
        _describe(broker, name)
        for fields in (
            {"ProducerId": first["ProducerId"], "ProducerEpoch": 0},
            {"ProducerId": first["ProducerId"], "ProducerEpoch": 1},
            {"ProducerId": first["ProducerId"], "ProducerEpoch": 1},
            {"ProducerId": first["ProducerId"], "ProducerEpoch": 9},
            {"ProducerId": _NOBODY, "ProducerEpoch": 0},
            {"ProducerId": first["ProducerId"], "ProducerEpoch": -1},
            {"ProducerId": -1, "ProducerEpoch": 1},
        ):
            _init(broker, name, version, **fields)
        # An id that nobody knows takes any expected producer.
        _init(broker, f"{name}-new", version, ProducerId=_NOBODY, ProducerEpoch=7)
        broker.ask("InitProducerId", version, TransactionalId="", TransactionTimeoutMs=1000)


def added_partitions(broker: Broker) -> None:
    """AddPartitionsToTxn and AddOffsetsToTxn: what is added, and what is refused."""
    ready(broker)
    create_topic(broker, "added", 3)
    for version in broker.versions["AddPartitionsToTxn"]:
        name = f"added-{version}"
        producer = _init(broker, name)
        for verify in (True, False) if version >= _OF_BROKERS_FROM else (False,):
            for wrong in _wrong_producers(producer):
                _add(broker, version, wrong, _one("added", 0), VerifyOnly=verify)
            for topics in (
                _one("added", 9),
                _one("unknown", 0),
                _one("added", 0, 9, -1, 1),
                _one("added", 1) + _one("unknown", 0, 1),
            ):
                _add(broker, version, producer, topics, VerifyOnly=verify)
            _add(broker, version, producer, _one("added", 0, 1), VerifyOnly=verify)
            _describe(broker, name)
        _add(broker, version, producer, _one("added", 0, 1))
        _add(broker, version, producer, _one("added", 1, 2, 2) + _one("__consumer_offsets", 0))
        _describe(broker, name)
        if version >= _OF_BROKERS_FROM:
            _add(broker, version, producer, _one("added", 0, 1, 2), VerifyOnly=True)
            other = _init(broker, f"{name}-other")
            transactions = [
                one | {"Topics": _one("added", 0, 1), "VerifyOnly": verify}
                for one, verify in ((producer, True), (other, True), (other, False), (other, True))
            ]
            for sent in (transactions[:2], transactions[2:3], transactions[3:]):
                broker.ask("AddPartitionsToTxn", version, Transactions=sent)
    for version in broker.versions["AddOffsetsToTxn"]:
        producer = _init(broker, f"offsets-{version}")
        for one in (*_wrong_producers(producer), producer, producer):
            broker.ask("AddOffsetsToTxn", version, **one, GroupId="group")
        broker.ask("AddOffsetsToTxn", version, **producer, GroupId="")
        _describe(broker, f"offsets-{version}")


def ended_transactions(broker: Broker) -> None:
    """EndTxn: commit and abort, again and otherwise, and without a transaction."""
    ready(broker)
    create_topic(broker, "ended")
    for version in broker.versions["EndTxn"]:
        name = f"ended-{version}"
        producer = _init(broker, name)
        for commit, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
            for wrong in _wrong_producers(producer):
                _end(broker, wrong, commit, version)
            _end(broker, producer, not commit, version)
            _add(broker, 3, producer, _one("ended", 0))
            _end(broker, producer, commit, version)
            _wait_for(broker, name, state)
            _end(broker, producer, commit, version)
            _end(broker, producer, not commit, version)
            _describe(broker, name)
        _add(broker, 3, producer, [])
        _end(broker, producer, True, version)
        _wait_for(broker, name, "CompleteCommit")


def fenced_producers(broker: Broker) -> None:
    """Another producer of the same id ends the transaction of the first, which then gets errors."""
    ready(broker)
    create_topic(broker, "fenced")
    for version in broker.versions["InitProducerId"]:
        name = f"fenced-{version}"
        first = _init(broker, name, version)
        _add(broker, 3, first, _one("fenced", 0))
        assert _init(broker, name, version)["ProducerId"] == -1
        _wait_for(broker, name, "CompleteAbort")
        _describe(broker, name)
        second = _init(broker, name, version)
        for api, most in (("AddPartitionsToTxn", 3), ("AddOffsetsToTxn", 4), ("EndTxn", 4)):
            for of_api in range(most + 1):
                if api == "AddPartitionsToTxn":
                    _add(broker, of_api, first, _one("fenced", 0))
                elif api == "EndTxn":
                    _end(broker, first, True, of_api)
                else:
                    broker.ask("AddOffsetsToTxn", of_api, **first, GroupId="group")
        _add(broker, 3, second, _one("fenced", 0))
        _end(broker, second, True)
        _wait_for(broker, name, "CompleteCommit")


def transactional_records(broker: Broker) -> None:
    """Produce: records of transactions that nobody has begun, that are open, and that have ended."""
    ready(broker)
    for version in broker.versions["Produce"]:
        if version < _FORMAT_2_FROM:
            continue
        name = f"records-{version}"
        create_topic(broker, name, 2)
        producer = _init(broker, name)

        def send(
            sequence: int,
            partition: int = 0,
            *,
            attributes: int = TRANSACTIONAL,
            transactional_id: str | None = name,
            version: int = version,
            topic: str = name,
            producer: dict[str, Any] = producer,
            **fields: int,
        ) -> None:
            batch = {
                "producer_id": producer["ProducerId"],
                "producer_epoch": producer["ProducerEpoch"],
                "base_sequence": sequence,
                "attributes": attributes,
            }
            data = plain("t", **batch | fields)
            request = one_produce(topic, data, partition) | {"TransactionalId": transactional_id}
            broker.ask("Produce", version, **request)

        send(0)
        send(0, transactional_id=None)
        send(0, transactional_id="no such id")
        send(0, transactional_id="")
        send(0, producer_id=_NOBODY)
        send(0, producer_epoch=9)
        _add(broker, 3, producer, _one(name, 0))
        # A transactional id does not need transactional records.
        send(0, 1, attributes=0, producer_id=-1, producer_epoch=-1)
        send(0, 1)
        send(5)
        send(0)
        send(0)
        send(1)
        send(7)
        send(2, attributes=0)
        send(2, producer_epoch=9)
        send(2, transactional_id=None)
        send(2, transactional_id="no such id")
        several = [
            {"Index": index, "Records": plain("t", producer_id=index + 1, producer_epoch=0, base_sequence=0)}
            for index in range(2)
        ]
        broker.ask(
            "Produce",
            version,
            **one_produce(name, b"")
            | {"TransactionalId": name, "TopicData": [{"Name": name, "PartitionData": several}]},
        )
        _read(broker, name)
        _end(broker, producer, version % 2 == 0)
        _wait_for(broker, name, "CompleteAbort" if version % 2 else "CompleteCommit")
        send(2)
        send(2, attributes=0)
        _read(broker, name)
        for described in broker.versions["DescribeProducers"]:
            broker.ask("DescribeProducers", described, Topics=[{"Name": name, "PartitionIndexes": [0, 1]}])


def _read(broker: Broker, topic: str) -> None:
    """Ask for records and offsets at both isolation levels."""
    for isolation in (0, 1):
        broker.ask(
            "Fetch",
            12,
            ReplicaId=-1,
            MaxWaitMs=0,
            MinBytes=0,
            MaxBytes=1_000_000,
            IsolationLevel=isolation,
            Topics=[
                {
                    "Topic": topic,
                    "Partitions": [
                        {"Partition": index, "FetchOffset": 0, "PartitionMaxBytes": 1_000_000}
                        for index in range(2)
                    ],
                }
            ],
        )
        partitions = [{"PartitionIndex": index, "Timestamp": -1} for index in range(2)]
        broker.ask(
            "ListOffsets",
            7,
            ReplicaId=-1,
            IsolationLevel=isolation,
            Topics=[{"Name": topic, "Partitions": partitions}],
        )


def transactional_offsets(broker: Broker) -> None:
    """TxnOffsetCommit, and OffsetFetch while its transaction is open and afterwards."""
    ready(broker)
    create_topic(broker, "source")
    for version in broker.versions["TxnOffsetCommit"]:
        name = f"offsets-of-{version}"
        producer = _init(broker, name)

        def commit(one: dict[str, Any], name: str = name, version: int = version, **fields: Any) -> None:
            partitions = [
                {
                    "PartitionIndex": index,
                    "CommittedOffset": 5,
                    "CommittedMetadata": "m",
                    "CommittedLeaderEpoch": 0,
                }
                for index in (0, 7)
            ]
            request = one | {"GroupId": name, "Topics": [{"Name": "source", "Partitions": partitions}]}
            broker.ask("TxnOffsetCommit", version, **request | fields)

        def fetch(name: str = name) -> None:
            topics = [{"Name": "source", "PartitionIndexes": [0]}]
            for stable in (False, True):
                groups = [{"GroupId": name, "Topics": topics}]
                broker.ask("OffsetFetch", 7, GroupId=name, Topics=topics, RequireStable=stable)
                broker.ask("OffsetFetch", 8, Groups=groups, RequireStable=stable)

        commit(producer)
        broker.ask("AddOffsetsToTxn", 3, **producer, GroupId=name)
        for wrong in _wrong_producers(producer):
            commit(wrong)
        if version >= 3:
            commit(producer, MemberId="nobody")
            commit(producer, GenerationId=3)
            commit(producer, MemberId="nobody", GenerationId=3)
            commit(producer, GroupInstanceId="nobody")
        commit(producer, GroupId="")
        commit(producer, Topics=[])
        commit(producer)
        fetch()
        _end(broker, producer, version % 2 == 0)
        _wait_for(broker, name, "CompleteAbort" if version % 2 else "CompleteCommit")
        # The group learns of the end a little later.
        broker.wait(
            lambda answer: answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0,
            "OffsetFetch",
            7,
            GroupId=name,
            Topics=[{"Name": "source", "PartitionIndexes": [0]}],
            RequireStable=True,
        )
        fetch()
        commit(producer)


def looked_at_transactions(broker: Broker) -> None:
    """DescribeTransactions and ListTransactions."""
    ready(broker)
    create_topic(broker, "looked-at", 2)
    create_topic(broker, "looked-at-too")
    for name in ("looked-at-empty", "looked-at-open", "looked-at-ended"):
        producer = _init(broker, name)
        if name != "looked-at-empty":
            _add(broker, 3, producer, _one("looked-at", 0, 1) + _one("looked-at-too", 0))
        if name == "looked-at-ended":
            _end(broker, producer, True)
            _wait_for(broker, name, "CompleteCommit")
    _describe(broker)
    _describe(broker, "looked-at-empty", "looked-at-open", "looked-at-ended", "no such id", "", "no such id")
    for version in broker.versions["ListTransactions"]:
        for states in (
            [],
            ["Ongoing"],
            ["Empty", "CompleteCommit"],
            ["ongoing"],
            ["no such", "Dead", "Empty"],
        ):
            broker.ask("ListTransactions", version, StateFilters=states, DurationFilter=-1)
        for ids in ([producer["ProducerId"]], [_NOBODY], [-1]):
            broker.ask("ListTransactions", version, ProducerIdFilters=ids, DurationFilter=-1)
            broker.ask(
                "ListTransactions", version, ProducerIdFilters=ids, StateFilters=["Empty"], DurationFilter=-1
            )
        if version >= 1:
            for duration in (-1, -5, 10**9, 2**63 - 1):
                broker.ask("ListTransactions", version, DurationFilter=duration)


def written_markers(broker: Broker) -> None:
    """WriteTxnMarkers: what coordinators send, and ``kafka-transactions.sh abort``."""
    ready(broker)
    for version in broker.versions["WriteTxnMarkers"]:
        name = f"marked-{version}"
        create_topic(broker, name, 2)
        producer = _init(broker, name)
        _add(broker, 3, producer, _one(name, 0, 1))
        batch = plain(
            "t",
            attributes=TRANSACTIONAL,
            producer_id=producer["ProducerId"],
            producer_epoch=producer["ProducerEpoch"],
            base_sequence=0,
        )
        broker.ask("Produce", 9, **one_produce(name, batch) | {"TransactionalId": name})
        marker = {
            "ProducerId": producer["ProducerId"],
            "ProducerEpoch": producer["ProducerEpoch"],
            "TransactionResult": False,
            "CoordinatorEpoch": 0,
        }
        topics = [{"Name": name, "PartitionIndexes": [0, 1, 5]}, {"Name": "unknown", "PartitionIndexes": [0]}]
        broker.ask("WriteTxnMarkers", version, Markers=[])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": []}])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": topics, "ProducerEpoch": -1}])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": topics}])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": topics, "CoordinatorEpoch": 3}])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": topics}])
        broker.ask("WriteTxnMarkers", version, Markers=[marker | {"Topics": topics, "CoordinatorEpoch": -1}])
        _read(broker, name)
        for described in broker.versions["DescribeProducers"]:
            broker.ask("DescribeProducers", described, Topics=[{"Name": name, "PartitionIndexes": [0, 1]}])
