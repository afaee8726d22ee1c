"""A client that uses aiokafka: ``python aiokafka_client.py BOOTSTRAP SCENARIO``.

It runs in a virtual environment of its own. Topics are made by the scenarios.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError

TIMEOUT = 60.0
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.05)
    assert condition(), what


async def create(bootstrap: str, topic: str, partitions: int) -> str:
    """Create a topic, and wait until it has leaders."""
    async with admin_of(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 3)])
        async with asyncio.timeout(TIMEOUT):
            while True:
                (described,) = await admin.describe_topics([topic])
                leaders = [one["leader"] for one in described["partitions"]]
                if len(leaders) == partitions and min(leaders) > 0:
                    return topic
                await asyncio.sleep(0.05)


def admin_of(bootstrap: str) -> Any:
    class Admin(AsyncExitStack):
        async def __aenter__(self) -> Any:
            await super().__aenter__()
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            self.push_async_callback(admin.close)
            return admin

    return Admin()


def consumer_of(bootstrap: str, *topics: str, **settings: Any) -> Any:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "session_timeout_ms": 6000}
    return AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **{**defaults, **settings})


async def take(consumer: Any, count: int) -> list[Any]:
    """Return the next records."""
    async with asyncio.timeout(TIMEOUT):
        return [await consumer.getone() for _ in range(count)]


async def codecs(bootstrap: str) -> None:
    """Records of each codec, from an idempotent producer, with keys, headers and timestamps."""
    for codec in CODECS:
        topic = await create(bootstrap, f"aio-{codec}", 1)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec, linger_ms=5
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    b"%d " % number * 30,
                    key=b"key",
                    headers=[("n", b"%d" % number)],
                    timestamp_ms=1_000_000 + number,
                )
                for number in range(1_000)
            ]
            placed = await asyncio.gather(*sent)
        assert [one.offset for one in placed] == list(range(1_000))
        async with consumer_of(bootstrap, topic) as consumer:
            records = await take(consumer, 1_000)
        assert [int(one.value.split()[0]) for one in records] == list(range(1_000))
        assert (records[7].timestamp, records[7].headers) == (1_000_007, (("n", b"7"),))


async def groups(bootstrap: str) -> None:
    """Three members share six partitions; one leaves, and the others take over with its committed offsets."""
    topic = await create(bootstrap, "aio-group", 6)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(120):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 6)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.assigned = 0

        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            self.assigned += 1

    async with AsyncExitStack() as stack:
        members, listeners = [], []
        for _ in range(3):
            consumer = consumer_of(bootstrap, group_id="aio-group", heartbeat_interval_ms=300)
            await stack.enter_async_context(consumer)
            listeners.append(Listener())
            consumer.subscribe([topic], listener=listeners[-1])
            members.append(consumer)

        def shared(size: int) -> Callable[[], bool]:
            return lambda: [len(one.assignment()) for one in members] == [size] * len(members)

        await until(shared(2), "three members have two partitions each")
        found = [record for one in members for record in await take(one, 40)]
        assert sorted(int(one.value) for one in found) == list(range(120))
        await asyncio.gather(*[one.commit() for one in members])
        await members.pop().stop()
        await until(shared(3), "two members have three partitions each")
        assert all(one.assigned > 0 for one in listeners)
        for member in members:
            for partition in member.assignment():
                assert await member.committed(partition) == 20
                assert await member.position(partition) == 20
    async with admin_of(bootstrap) as admin:
        assert ("aio-group", "consumer") in [tuple(one[:2]) for one in await admin.list_consumer_groups()]
        offsets = await admin.list_consumer_group_offsets("aio-group")
        assert {key.partition: value.offset for key, value in offsets.items()} == dict.fromkeys(range(6), 20)


async def seeking(bootstrap: str) -> None:
    """Seek by offset and by time, pause, and offsets that are not there."""
    topic = await create(bootstrap, "aio-seek", 2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(100):
            for partition in (0, 1):
                await producer.send_and_wait(
                    topic, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number
                )
    async with consumer_of(bootstrap) as consumer:
        consumer.assign([one, two])
        assert await consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
        assert await consumer.end_offsets([one, two]) == {one: 100, two: 100}
        found = await consumer.offsets_for_times({one: 1_000_042, two: 2_000_000})
        assert (found[one].offset, found[one].timestamp, found[two]) == (42, 1_000_042, None)
        consumer.pause(two)
        consumer.seek(one, 90)
        assert [record.offset for record in await take(consumer, 10)] == list(range(90, 100))
        consumer.resume(two)
        await consumer.seek_to_end(one)
        assert {record.partition for record in await take(consumer, 100)} == {1}
    async with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([one])
        consumer.seek(one, 1_000)
        try:
            await take(consumer, 1)
        except OffsetOutOfRangeError:
            pass
        else:
            raise AssertionError("an offset that is not there was read")


async def administration(bootstrap: str) -> None:
    """Topics, partitions, configs and deletion."""
    async with admin_of(bootstrap) as admin:
        await create(bootstrap, "aio-admin", 1)
        await admin.create_partitions({"aio-admin": NewPartitions(3)})
        async with asyncio.timeout(TIMEOUT):
            while len((await admin.describe_topics(["aio-admin"]))[0]["partitions"]) != 3:
                await asyncio.sleep(0.05)
        resource = ConfigResource(ConfigResourceType.TOPIC, "aio-admin", {"retention.ms": "123456789"})
        await admin.alter_configs([resource])
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "aio-admin")])
        values = {entry[0]: entry[1] for entry in described.resources[0][4]}
        assert values["retention.ms"] == "123456789"
        cluster = await admin.describe_cluster()
        assert sorted(node["node_id"] for node in cluster["brokers"]) == [1, 2, 3]
        await admin.delete_topics(["aio-admin"])
        async with asyncio.timeout(TIMEOUT):
            while "aio-admin" in await admin.list_topics():
                await asyncio.sleep(0.05)


async def refusals(bootstrap: str) -> None:
    """What a producer gets for records that no broker takes, and that it goes on."""
    topic = await create(bootstrap, "aio-refused", 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=10_000_000) as producer:
        try:
            await producer.send_and_wait(topic, b"x" * 3_000_000)
        except MessageSizeTooLargeError:
            pass
        else:
            raise AssertionError("a record of 3 MB was taken")
        assert (await producer.send_and_wait(topic, b"x")).offset == 0


async def transactions(bootstrap: str) -> None:
    """A transaction commits, one aborts with its offsets, and a second producer fences the first."""
    topic = await create(bootstrap, "aio-transactions", 1)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio") as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed", partition=0)
            await producer.send_offsets_to_transaction({partition: 1}, "aio-transactional")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.send_offsets_to_transaction({partition: 2}, "aio-transactional")
        await producer.abort_transaction()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio") as second:
            async with second.transaction():
                await second.send_and_wait(topic, b"of the second", partition=0)
            try:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"of the first", partition=0)
            except KafkaError as error:
                print(repr(error))
            else:
                raise AssertionError("the first producer is not fenced")
    settings = {"group_id": "aio-transactional", "isolation_level": "read_committed"}
    async with consumer_of(bootstrap, **settings) as consumer:
        consumer.assign([partition])
        assert await consumer.committed(partition) == 1
        await consumer.seek_to_beginning()
        found = [record.value for record in await take(consumer, 2)]
        assert found == [b"committed", b"of the second"], found


SCENARIOS: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
    one.__name__: one for one in (codecs, groups, seeking, administration, refusals, transactions)
}

if __name__ == "__main__":
    asyncio.run(SCENARIOS[sys.argv[2]](sys.argv[1]))
