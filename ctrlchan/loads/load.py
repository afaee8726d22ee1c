"""Load: what all workers of a load get, in values that JSON can carry."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ctrlchan.errors import ConfigError

if TYPE_CHECKING:
    from ctrlchan.loads.worker import Worker

__all__ = ["KINDS", "Load"]

#: Where each kind of load is.
KINDS: Final = {
    "produce": "ctrlchan.loads.kinds.produce:ProduceLoad",
    "consume": "ctrlchan.loads.kinds.consume:ConsumeLoad",
    "groups": "ctrlchan.loads.kinds.groups:GroupsLoad",
    "transactions": "ctrlchan.loads.kinds.transactions:TransactionsLoad",
    "leaders": "ctrlchan.loads.kinds.leaders:LeadersLoad",
    "topics": "ctrlchan.loads.kinds.topics:TopicsLoad",
}


@dataclass(frozen=True, kw_only=True)
class Load(ABC):
    """A load on one cluster.

    - ``run``: the name of this run, with which all its topics, groups and transactional ids begin.
    - ``cluster_id``: of the cluster that may be loaded; a worker that reaches another one does nothing.
    - ``client``: settings of the clients under librdkafka's names.
    - ``clients``: workers, each with a process of its own.
    - ``rate``: operations each second of all workers together; 0: as fast as possible.
    - ``seconds``, ``warmup``: how long; what is due during the warm-up is not measured.
    - ``topic``, ``partitions``, ``replication``: the topic of the load.
    """

    kind: ClassVar[str]

    run: str
    cluster_id: str
    client: dict[str, str] = field(repr=False)
    clients: int
    rate: float
    seconds: float
    warmup: float
    partitions: int
    replication: int

    @property
    def topic(self) -> str:
        return f"{self.run}-records"

    @property
    def groups(self) -> list[str]:
        """Consumer groups that the load makes."""
        return []

    @property
    def needs_topic(self) -> bool:
        """Whether ``topic`` is there when the workers begin."""
        return True

    def check(self) -> None:  # noqa: B027 - most kinds take all values
        """Raise ConfigError for values that do not go together."""

    @abstractmethod
    def work(self, worker: Worker) -> None:
        """Be one worker. Raises CtrlchanError and the client's KafkaException."""

    def _require(self, is_so: bool, reason: str) -> None:
        if not is_so:
            raise ConfigError(f"{self.kind}: {reason}")

    def own_partitions(self, number: int) -> list[int]:
        """Return the partitions of the topic that belong to one worker."""
        return list(range(number, self.partitions, self.clients))

    def describe(self) -> dict[str, Any]:
        """Return the load for a report: without the settings of the clients, which have passwords."""
        hidden = {"client", "run", "cluster_id"}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in hidden}

    def encode(self) -> str:
        """Return the load as JSON. It has the passwords of the clients in it."""
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)})

    @staticmethod
    def decode(text: str) -> Load:
        values = json.loads(text)
        module, _, name = KINDS[values.pop("kind")].partition(":")
        made: Load = getattr(import_module(module), name)(**values)
        return made
