"""A broker without a socket that serves the APIs of groups; requests and responses are kio's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from kio.index import load_request_schema
from kio.static.primitive import i32Timedelta

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.group_service import GroupService
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.handlers.table import GROUP_APIS, TRANSACTION_APIS
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.producer_ids import Block, ProducerIds, random_block
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.server.api import Reply, Request
from tests.kafka.waiting import wait_until
from tests.unit.broker.cores import storing_core
from tests.unit.broker.groups.partitions import FaultyPartition, FaultyPartitions
from tests.unit.broker.local_broker import (
    CORRELATION_ID,
    EPOCH,
    OURS,
    LocalBroker,
    Part,
    client_frame,
    read_client_response,
)
from tests.unit.server.contexts import context

GROUP = "a-group"
TOPIC = "foo"
DEADLINE = 60.0
CONFIG = GroupConfig(min_session_timeout=1, initial_rebalance_delay=0, offsets_topic_partitions=1)

_TABLE = {api.key: api for api in (*GROUP_APIS, *TRANSACTION_APIS)}
HIGHEST = {api.name: api.highest for api in _TABLE.values()}
KEYS = {api.name: api.key for api in _TABLE.values()}


def ms(time: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=time))


def part(api: str, version: int, kind: str, /, **fields: Any) -> Any:
    """A part of a request, with those of `fields` that the version has."""
    module: Any = sys.modules[load_request_schema(KEYS[api], version).__module__]
    return _known(getattr(module, kind), fields)


def _known(entity: Any, fields: dict[str, Any]) -> Any:
    known = entity.__dataclass_fields__
    return entity(**{name: value for name, value in fields.items() if name in known})


class GroupBroker:
    """Calls the APIs as a handler thread does. ``core.groups`` runs; TOPIC has the partitions 0 and 1."""

    def __init__(self, core: StoringCore, offsets_partition: FaultyPartition) -> None:
        self.core = core
        self.offsets_partition = offsets_partition
        self.local = LocalBroker(core)

    def send(self, api: str, version: int, *, host: str = "127.0.0.1", **fields: Any) -> Future[Any]:
        """Send a request with those of `fields` that the version has; return the future response."""
        schema: Any = load_request_schema(KEYS[api], version)
        known = {name: value for name, value in fields.items() if name in schema.__dataclass_fields__}
        frame = memoryview(client_frame(KEYS[api], version, **known))
        table_entry = _TABLE[KEYS[api]]
        assert not table_entry.locks_core
        header = decode_request_header(frame, table_entry.request_header_version(version))
        client = context(client_host=host)
        request = Request(version, header.correlation_id, header.client_id, frame, header.size, client)
        reply = table_entry.handle(self.core, request)
        answer: Future[Any] = Future()

        def read(reply: Reply) -> None:
            response = encode_response_header(table_entry.response_header_version(version), CORRELATION_ID)
            answer.set_result(read_client_response(KEYS[api], version, response + reply.body))

        if isinstance(reply, Future):
            reply.add_done_callback(lambda done: read(done.result()))
        else:
            assert isinstance(reply, Reply)
            read(reply)
        return answer

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        return self.send(api, version, **fields).result(DEADLINE)

    # Requests with usual fields

    def send_join(self, version: int = 9, member_id: str = "", **fields: Any) -> Future[Any]:
        protocols = tuple(
            part("JoinGroup", version, "JoinGroupRequestProtocol", name=name, metadata=metadata)
            for name, metadata in fields.pop("protocols", [("range", b"metadata")])
        )
        usual = {
            "group_id": GROUP,
            "session_timeout": ms(30_000),
            "rebalance_timeout": ms(30_000),
            "protocol_type": "consumer",
        }
        return self.send(
            "JoinGroup", version, member_id=member_id, protocols=protocols, **{**usual, **fields}
        )

    def join(self, version: int = 9, **fields: Any) -> Any:
        """Join, a second time when the first answer brings the member id only."""
        joined = self.send_join(version, **fields).result(DEADLINE)
        if joined.error_code.value == 79:
            joined = self.send_join(version, joined.member_id, **fields).result(DEADLINE)
        return joined

    def send_sync(
        self, joined: Any, version: int = 5, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> Future[Any]:
        usual = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        parts = tuple(
            part(
                "SyncGroup", version, "SyncGroupRequestAssignment", member_id=member_id, assignment=assignment
            )
            for member_id, assignment in (assignments or {}).items()
        )
        return self.send("SyncGroup", version, assignments=parts, **{**usual, **fields})

    def stable(self, **fields: Any) -> Any:
        """Make a Stable group of one member."""
        joined = self.join(**fields)
        assignments = {joined.member_id: b"all"}
        assert self.send_sync(joined, assignments=assignments).result(DEADLINE).assignment == b"all"
        return joined

    def commit(
        self, offsets: dict[tuple[str, int], int], version: int = 9, joined: Any = None, **fields: Any
    ) -> dict[tuple[str, int], int]:
        """Commit offsets; return the error of each partition."""
        if joined is not None:
            fields |= {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        usual = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time": ms(-1),
        }
        response = self.ask(
            "OffsetCommit", version, topics=_topics("OffsetCommit", version, offsets), **{**usual, **fields}
        )
        return {(topic, partition): error for topic, partition, error in errors_of(response)}

    def commit_in_transaction(
        self, offsets: dict[tuple[str, int], int], version: int = 4, **fields: Any
    ) -> list[tuple[str, int, int]]:
        """Commit offsets in a transaction; return the error of each partition."""
        usual = {
            "group_id": GROUP,
            "transactional_id": "tx",
            "producer_id": 7,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        topics = _topics("TxnOffsetCommit", version, offsets)
        return errors_of(self.ask("TxnOffsetCommit", version, topics=topics, **{**usual, **fields}))


def _topics(api: str, version: int, offsets: dict[tuple[str, int], int]) -> tuple[Any, ...]:
    return tuple(
        part(
            api,
            version,
            f"{api}RequestTopic",
            name=topic,
            partitions=(
                part(
                    api,
                    version,
                    f"{api}RequestPartition",
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=2,
                    committed_metadata="note",
                    commit_timestamp=-1,
                ),
            ),
        )
        for (topic, partition), offset in offsets.items()
    )


def errors_of(response: Any) -> list[tuple[str, int, int]]:
    """Topic, partition and error of each partition of a response, in its order."""
    return [
        (topic.name, one.partition_index, one.error_code.value)
        for topic in response.topics
        for one in topic.partitions
    ]


@contextmanager
def group_broker(
    folder: Path,
    config: GroupConfig = CONFIG,
    *,
    leads: bool = True,
    allocate: Callable[[], Future[Block]] | None = None,
    controller: Any = None,
) -> Iterator[GroupBroker]:
    """A broker with ``__consumer_offsets`` of one partition, which it leads if `leads`.

    ``allocate``: asks for blocks of producer ids; None: any block. ``controller``: its ControllerClient.
    """
    partitions = FaultyPartitions(folder)
    groups = GroupService(OURS, config, partitions.get)
    ids = ProducerIds(OURS, random_block if allocate is None else allocate)
    metadata = PublishedMetadata("cluster")
    transactions = TransactionService(
        OURS,
        TransactionConfig(topic_partitions=7, topic_replication_factor=2, topic_min_in_sync_replicas=1),
        ids,
        lambda _topic, _partition: None,
        metadata,
        "PLAINTEXT",
        lambda _producer_id, _partitions, _commit: None,
    )
    core = storing_core(
        OURS,
        epoch=EPOCH,
        groups=groups,
        transactions=transactions,
        producer_ids=ids,
        controller=controller,
        metadata=metadata,
    )
    groups.start()
    transactions.start()
    try:
        broker = GroupBroker(core, partitions.replicas[0])
        if leads:
            assert broker.local.update_metadata(Part(TOPIC, 0), Part(TOPIC, 1), Part(OFFSETS_TOPIC)) == 0
            groups.on_leader(0, 0)
            wait_until(
                lambda: not groups.coordinator.describe(GROUP).error, timeout=DEADLINE, what="the groups"
            )
        yield broker
    finally:
        transactions.stop()
        groups.stop()
        partitions.close()
