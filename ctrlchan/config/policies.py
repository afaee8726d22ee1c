"""Policies: classes of the user's own that refuse new topics and changes of configs (KIP-108, KIP-133).

``create.topic.policy.class.name`` and ``alter.config.policy.class.name`` name them. Source:
``CreateTopicPolicy``, ``AlterConfigPolicy`` and ``ZkAdminManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ctrlchan.config import table
from ctrlchan.config.classes import instance_of
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = [
    "NO_POLICIES",
    "AlterConfigPolicy",
    "AlteredConfigs",
    "CreateTopicPolicy",
    "Policies",
    "PolicyViolation",
    "TopicRequest",
]

_LOG: Final = logging.getLogger("ctrlchan.config")


class PolicyViolation(Exception):
    """A policy refuses. The text is for the client (POLICY_VIOLATION)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """A topic that a client wants.

    ``num_partitions`` and ``replication_factor``: None where ``replicas_assignments`` has the broker ids of
    each partition, which is None otherwise. ``configs``: as the client has set them.
    """

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredConfigs:
    """Configs that a client changes. ``resource_type``: TOPIC or BROKER. ``name``: "" for all brokers.

    ``configs``: the new values by name; None for one that is deleted.
    """

    resource_type: str
    name: str
    configs: Mapping[str, str | None]


class _Policy(ABC):  # noqa: B024 - the two kinds have a method each
    def configure(self, configs: Mapping[str, str]) -> None:  # noqa: B027 - most need nothing
        """Take the settings of the broker or controller. Raises ConfigError for a value that cannot be."""

    def close(self) -> None:  # noqa: B027 - most need nothing
        """Give back what the policy has taken."""


_P = TypeVar("_P", bound=_Policy)


class CreateTopicPolicy(_Policy):
    """The base class of a policy for new topics."""

    @abstractmethod
    def validate(self, request: TopicRequest) -> None:
        """Raise PolicyViolation for a topic that must not be created."""


class AlterConfigPolicy(_Policy):
    """The base class of a policy for changes of configs."""

    @abstractmethod
    def validate(self, request: AlteredConfigs) -> None:
        """Raise PolicyViolation for configs that must not be changed so."""


class Policies:
    """The policies that settings name. ``of`` makes them; the methods raise KafkaError."""

    def __init__(
        self, create_topic: CreateTopicPolicy | None = None, alter_config: AlterConfigPolicy | None = None
    ) -> None:
        self._create_topic = create_topic
        self._alter_config = alter_config

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Policies:
        """Return the policies that settings name, configured. Raises ConfigError."""
        return cls(
            _policy(configs, table.CREATE_TOPIC_POLICY_CLASS_NAME.name, CreateTopicPolicy),  # type: ignore[type-abstract]
            _policy(configs, table.ALTER_CONFIG_POLICY_CLASS_NAME.name, AlterConfigPolicy),  # type: ignore[type-abstract]
        )

    def check_topic(self, request: TopicRequest) -> None:
        """Raise KafkaError if the policy refuses a new topic."""
        policy = self._create_topic
        if policy is not None:
            _ask(f"the policy for new topics, asked about {request.topic}", lambda: policy.validate(request))

    def check_configs(self, request: AlteredConfigs) -> None:
        """Raise KafkaError if the policy refuses a change of configs."""
        policy = self._alter_config
        if policy is not None:
            what = f"{request.resource_type} {request.name}"
            _ask(f"the policy for configs, asked about {what}", lambda: policy.validate(request))

    def close(self) -> None:
        """Close the policies; what they raise is logged."""
        for policy in (self._create_topic, self._alter_config):
            try:
                if policy is not None:
                    policy.close()
            except Exception:  # noqa: BLE001  (the user's own code)
                _LOG.exception("a policy fails at its end")


#: Nothing is refused.
NO_POLICIES: Final = Policies()


def _policy(configs: Mapping[str, str], key: str, kind: type[_P]) -> _P | None:
    """Return the policy that a setting names, configured; None if it names none. Raises ConfigError."""
    name = configs.get(key, "").strip()
    if not name:
        return None
    policy = instance_of(key, name, kind)
    policy.configure(configs)
    return policy


def _ask(who: str, validate: Callable[[], None]) -> None:
    """Raise KafkaError with what a policy says; an exception of another kind is logged."""
    try:
        validate()
    except PolicyViolation as violation:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(violation)) from None
    except Exception:  # noqa: BLE001  (the user's own code)
        _LOG.exception("%s, fails", who)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
