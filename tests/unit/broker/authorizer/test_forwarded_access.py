"""What the broker forwards to the controller for a client: what the client may do, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Requester
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.peers.requests import Answer
from ctrlchan.protocol import LEADER_DURING_DELETE
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.topic_names import ZERO_ID
from tests.unit.broker.authorizer.deciding import CLASS, Deciding, deciding
from tests.unit.broker.local_broker import Part, client_frame, topic_id
from tests.unit.broker.test_storing_broker import ALONE, send
from tests.unit.server.contexts import LOCAL_CLIENT

CREATE, DELETE, GROW = 19, 20, 37
NONE, DENIED = KioError.none, KioError.topic_authorization_failed
APIS = storing_apis(forwards=True, alters_configs=False)


class Controller:
    """Does what it is asked for, and keeps the names."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        #: Is called before an answer is given.
        self.before_answer: Callable[[], object] = lambda: None

    def forward(self, api_key: int, version: int, *, body: bytes, **_: Any) -> Future[Answer]:
        request = entity_reader(load_request_schema(api_key, version))(body, 0)[0]
        done: Future[Answer] = Future()
        answer = self._answer(api_key, version, request)
        self.before_answer()
        done.set_result(Answer(version, answer))
        return done

    def _answer(self, api_key: int, version: int, request: Any) -> bytes:
        if api_key == CREATE:
            messages = ClientMessages("create_topics", version)
            self.asked += [one.name for one in request.topics]
            configs: tuple[Any, ...] = ()
            if version >= 5:
                configs = (
                    messages.part(
                        "CreatableTopicConfigs",
                        name="k",
                        value="v",
                        read_only=False,
                        config_source=5,
                        is_sensitive=False,
                    ),
                )
            parts = [
                messages.part(
                    "CreatableTopicResult",
                    name=one.name,
                    topic_id=UUID(bytes=topic_id(one.name)),
                    error_code=NONE,
                    error_message=None,
                    num_partitions=3,
                    replication_factor=1,
                    configs=configs,
                )
                # Of any order.
                for one in reversed(request.topics)
            ]
            return messages.response(topics=tuple(parts))
        if api_key == DELETE:
            messages = ClientMessages("delete_topics", version)
            by_name = hasattr(request, "topic_names")
            asked = [
                (one, None) if by_name else (one.name, one.topic_id)
                for one in (request.topic_names if by_name else request.topics)
            ]
            self.asked += [name or str(given) for name, given in asked]
            return messages.response(
                responses=tuple(
                    messages.part(
                        "DeletableTopicResult",
                        name=name or "known",
                        topic_id=given,
                        error_code=NONE,
                        error_message=None,
                    )
                    for name, given in asked
                )
            )
        messages = ClientMessages("create_partitions", version)
        self.asked += [one.name for one in request.topics]
        return messages.response(
            results=tuple(
                messages.part(
                    "CreatePartitionsTopicResult", name=one.name, error_code=NONE, error_message=None
                )
                for one in request.topics
            )
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    configs = {"num.io.threads": "1", "authorizer.class.name": CLASS}
    with EmbeddedBroker(1, log_dir=tmp_path_factory.mktemp("logs"), configs=configs) as started:
        with deciding(lambda *_: True):
            send(started, UPDATE_METADATA, *(Part(name, 0, **ALONE) for name in ("mine", "his", "seen")))
        yield started


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def handler(broker: EmbeddedBroker, controller: Controller) -> RequestHandler[Any]:
    core: Any = broker.inspect(lambda core: core)
    core = replace(core, controller=controller)
    return RequestHandler(core, APIS, core.lock, authorizer=Deciding.last)


def ask(
    handler: RequestHandler[Any], api_key: int, version: int, *, seconds: float = 0, **fields: Any
) -> Any:
    from ctrlchan.server.kio_entities import duration

    frame = client_frame(api_key, version, timeout=duration(seconds), **fields)
    answer = handler.serve(frame, LOCAL_CLIENT)
    if isinstance(answer, Future):
        answer = answer.result(20)
    schema: Any = load_response_schema(api_key, version)
    return entity_reader(schema)(b"".join(answer[1:]), 0)[0]


def may(*allowed: tuple[Operation, str]) -> Any:
    def decide(_: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind == ResourceType.TOPIC and (operation, name) in allowed

    return decide


def creation(version: int, *names: str) -> dict[str, Any]:
    module = __import__(f"kio.schema.create_topics.v{version}.request", fromlist=["CreatableTopic"])
    topics = tuple(
        module.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
        for name in names
    )
    return {"topics": topics} | ({"validate_only": False} if version else {})


@pytest.mark.parametrize("version", range(8))
def test_creations(handler: RequestHandler[Any], controller: Controller, version: int) -> None:
    with deciding(may((Operation.CREATE, "a"), (Operation.CREATE, "c"), (Operation.DESCRIBE_CONFIGS, "c"))):
        body = ask(handler, CREATE, version, **creation(version, "a", "b", "c"))
    assert controller.asked == ["a", "c"]
    assert [(one.name, one.error_code) for one in body.topics] == [("a", NONE), ("b", DENIED), ("c", NONE)]
    a, b, c = body.topics
    if version >= 1:
        assert b.error_message == "Authorization failed."
    if version >= 5:
        assert [one.topic_config_error_code for one in body.topics] == [DENIED, DENIED, NONE]
        assert [one.num_partitions for one in body.topics] == [-1, -1, 3]
        assert (a.configs, b.configs, len(c.configs)) == ((), (), 1)
    if version >= 7:
        assert [one.topic_id for one in body.topics][:2] == [None, None]
        assert c.topic_id is not None


def test_create_on_the_cluster_is_enough(handler: RequestHandler[Any], controller: Controller) -> None:
    with deciding(lambda _, operation, kind, _name: operation == Operation.CREATE and kind == 4):
        body = ask(handler, CREATE, 7, **creation(7, "a", "b"))
    assert controller.asked == ["a", "b"]
    assert {one.error_code for one in body.topics} == {NONE}
    assert {one.topic_config_error_code for one in body.topics} == {DENIED}


@pytest.mark.parametrize("version", range(7))
def test_deletions_by_name(handler: RequestHandler[Any], controller: Controller, version: int) -> None:
    with deciding(may((Operation.DELETE, "mine"), (Operation.DESCRIBE, "his"), (Operation.DELETE, "no"))):
        names = ("his", "mine", "no", "hidden")
        fields: dict[str, Any] = {"topic_names": names}
        if version >= 6:
            module = __import__("kio.schema.delete_topics.v6.request", fromlist=["DeleteTopicState"])
            fields = {"topics": tuple(module.DeleteTopicState(name=name, topic_id=None) for name in names)}
        body = ask(handler, DELETE, version, **fields)
    # Whether it exists is for the controller to say.
    assert controller.asked == ["mine", "no"]
    assert [(one.name, one.error_code) for one in body.responses] == [
        ("his", DENIED),
        ("mine", NONE),
        ("no", NONE),
        ("hidden", DENIED),
    ]


def test_deletions_by_id(handler: RequestHandler[Any], controller: Controller) -> None:
    module = __import__("kio.schema.delete_topics.v6.request", fromlist=["DeleteTopicState"])
    ids = [UUID(bytes=topic_id(name)) for name in ("mine", "his", "seen", "unknown")]
    topics = tuple(module.DeleteTopicState(name=None, topic_id=one) for one in ids)
    allowed = may((Operation.DELETE, "mine"), (Operation.DESCRIBE, "mine"), (Operation.DESCRIBE, "seen"))
    with deciding(allowed):
        body = ask(handler, DELETE, 6, topics=topics)
    assert controller.asked == [str(ids[0])]
    assert [(one.name, one.topic_id, one.error_code) for one in body.responses] == [
        ("known", ids[0], NONE),
        # The name is no answer to who may not describe the topic.
        (None, ids[1], DENIED),
        ("seen", ids[2], DENIED),
        # Nobody can say here whether the client may delete it.
        (None, ids[3], KioError.unknown_topic_id),
    ]
    assert ZERO_ID not in {one.bytes for one in ids}


@pytest.mark.parametrize("version", range(4))
def test_growths(handler: RequestHandler[Any], controller: Controller, version: int) -> None:
    module = __import__(
        f"kio.schema.create_partitions.v{version}.request", fromlist=["CreatePartitionsTopic"]
    )
    topics = tuple(
        module.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("his", "mine")
    )
    with deciding(may((Operation.ALTER, "mine"))):
        body = ask(handler, GROW, version, topics=topics, validate_only=True)
    assert controller.asked == ["mine"]
    assert [(one.name, one.error_code, one.error_message) for one in body.results] == [
        ("his", DENIED, "The topic authorization is failed."),
        ("mine", NONE, None),
    ]


def test_nothing_is_forwarded_where_all_is_denied(
    handler: RequestHandler[Any], controller: Controller
) -> None:
    with deciding(may()):
        body = ask(handler, CREATE, 7, **creation(7, "a"))
        assert [one.error_code for one in body.topics] == [DENIED]
        assert ask(handler, GROW, 3, topics=(), validate_only=False).results == ()
    assert controller.asked == []


@pytest.mark.parametrize("shown", [True, False], ids=["shown", "never-shown"])
@pytest.mark.parametrize("grows", [True, False], ids=["growth", "creation"])
def test_nobody_waits_for_a_topic_that_is_deleted_meanwhile(
    broker: EmbeddedBroker, handler: RequestHandler[Any], controller: Controller, grows: bool, shown: bool
) -> None:
    """The controller may send both changes in one request: the broker never sees the topic then."""

    def delete() -> None:
        if shown:
            send(broker, UPDATE_METADATA, Part("brief", 0, **ALONE))
        send(broker, UPDATE_METADATA, Part("brief", 0, leader=LEADER_DURING_DELETE, **ALONE))

    controller.before_answer = delete
    with deciding(lambda *_: True):
        if grows:
            module = __import__("kio.schema.create_partitions.v3.request", fromlist=["CreatePartitionsTopic"])
            topics = (module.CreatePartitionsTopic(name="brief", count=2, assignments=None),)
            (answer,) = ask(handler, GROW, 3, seconds=3600, topics=topics, validate_only=False).results
        else:
            (answer,) = ask(handler, CREATE, 7, seconds=3600, **creation(7, "brief")).topics
    assert answer.error_code is NONE
    assert broker.inspect(lambda core: len(core.metadata.watchers)) == 0


def test_nobody_waits_for_the_end_of_a_topic_that_is_made_anew(
    broker: EmbeddedBroker, handler: RequestHandler[Any], controller: Controller
) -> None:
    """Before version 6 an answer has no ids, and both have one name."""

    def delete_and_create() -> None:
        send(broker, UPDATE_METADATA, Part("again", 0, leader=LEADER_DURING_DELETE, **ALONE))
        send(broker, UPDATE_METADATA, Part("again", 0, **ALONE))

    controller.before_answer = delete_and_create
    with deciding(lambda *_: True):
        send(broker, UPDATE_METADATA, Part("again", 0, **ALONE))
        (answer,) = ask(handler, DELETE, 5, seconds=3600, topic_names=("again",)).responses
    assert answer.error_code is NONE
