"""Policies of the user's own: which classes are taken, and what becomes of what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from ctrlchan.config.changes import Change, Operation, alter_broker, alter_topic, replace_topic
from ctrlchan.config.policies import (
    NO_POLICIES,
    AlterConfigPolicy,
    AlteredConfigs,
    CreateTopicPolicy,
    Policies,
    PolicyViolation,
    TopicRequest,
)
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError

CREATE, ALTER = "create.topic.policy.class.name", "alter.config.policy.class.name"
TOPIC = TopicRequest(
    topic="t", num_partitions=1, replication_factor=1, replicas_assignments=None, configs={"a": "1"}
)


class Topics(CreateTopicPolicy):
    last: Topics

    def configure(self, configs: Mapping[str, str]) -> None:
        Topics.last, self.configs, self.closed = self, configs, False

    def validate(self, request: TopicRequest) -> None:
        if request.topic == "broken":
            raise ZeroDivisionError
        if request.replication_factor == 1:
            raise PolicyViolation(f"{request.topic} is too small")

    def close(self) -> None:
        self.closed = True
        raise ZeroDivisionError


class Configs(AlterConfigPolicy):
    asked: ClassVar[list[AlteredConfigs]] = []

    def validate(self, request: AlteredConfigs) -> None:
        Configs.asked.append(request)
        if "retention.ms" in request.configs:
            raise PolicyViolation("retention.ms stays as it is")


class Store:
    id = 1
    written: list[Any]

    def __init__(self) -> None:
        self.written = []

    def has_topic(self, name: str) -> bool:
        return name == "t"

    def read_topic_config(self, name: str) -> Mapping[str, str]:
        return {}

    def write_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        self.written.append((name, config))

    def read_broker_config(self, broker_id: int | None) -> dict[str, str]:
        return {}

    def check_broker_config(
        self, broker_id: int | None, config: Mapping[str, str], changed: Sequence[str]
    ) -> None: ...

    def write_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        self.written.append((broker_id, config))


def refused(call: Any, *arguments: Any, **more: Any) -> tuple[int, str]:
    with pytest.raises(KafkaError) as raised:
        call(*arguments, **more)
    return raised.value.code, raised.value.message


def test_a_policy_of_topics(caplog: pytest.LogCaptureFixture) -> None:
    configs = {CREATE: f"{__name__}.Topics", "of.the.policy": "1"}
    policies = Policies.of(configs)
    assert Topics.last.configs == configs
    assert refused(policies.check_topic, TOPIC) == (ErrorCode.POLICY_VIOLATION, "t is too small")
    broken = TopicRequest(
        topic="broken", num_partitions=None, replication_factor=None, replicas_assignments={}, configs={}
    )
    assert refused(policies.check_topic, broken)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the policy for new topics, asked about broken, fails" in caplog.text
    policies.check_configs(AlteredConfigs(resource_type="TOPIC", name="t", configs={}))
    policies.close()
    assert Topics.last.closed
    assert "a policy fails at its end" in caplog.text


def test_a_policy_of_configs() -> None:
    policies, store = Policies.of({ALTER: f"{__name__}.Configs"}), Store()
    Configs.asked = []
    wanted = [
        Change("retention.ms", Operation.DELETE, None),
        Change("cleanup.policy", Operation.SET, "delete"),
    ]
    error = ErrorCode.POLICY_VIOLATION, "retention.ms stays as it is"
    for validates in (True, False):
        assert refused(alter_topic, store, "t", wanted, policies, validate_only=validates) == error
    asked = AlteredConfigs(
        resource_type="TOPIC", name="t", configs={"retention.ms": None, "cleanup.policy": "delete"}
    )
    assert Configs.asked == [asked, asked]
    # What Kafka refuses itself does not come to the policy.
    bad = [Change("retention.ms", Operation.SET, "x")]
    assert (
        refused(replace_topic, store, "t", bad, policies, validate_only=False)[0] == ErrorCode.INVALID_CONFIG
    )
    assert len(Configs.asked) == 2
    alter_broker(store, "1", [Change("num.io.threads", Operation.SET, "2")], policies, validate_only=False)
    assert Configs.asked[-1] == AlteredConfigs(
        resource_type="BROKER", name="1", configs={"num.io.threads": "2"}
    )
    assert store.written == [(1, {"num.io.threads": "2"})]


def test_no_policies() -> None:
    for policies in (NO_POLICIES, Policies.of({}), Policies.of({CREATE: " "})):
        policies.check_topic(TOPIC)
        policies.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("org.example.Policy", "cannot be imported"),
        (f"{__name__}.Store", "is no subclass of"),
        (f"{__name__}.Configs", "is no subclass of"),
    ],
)
def test_what_is_no_policy(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"create\.topic\.policy\.class\.name.*{reason}"):
        Policies.of({CREATE: name})
