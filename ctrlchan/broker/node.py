"""BrokerNode: one broker as others know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
from ctrlchan.state import Broker, Endpoint

__all__ = ["BrokerNode"]


@dataclass(slots=True)
class BrokerNode:
    """The id, the registration and the static settings of a broker. Any thread may read it.

    The owner of the broker changes it: ``endpoint`` and ``more_endpoints`` get their ports when the broker
    listens, ``epoch`` is that of each registration, ``cluster_id`` comes from ZooKeeper.

    ``endpoint``: the listener that other brokers and the controller connect to, and the only one of a broker
    that stores no records; ``more_endpoints``: others. ``epoch``: requests with a lower broker epoch are
    refused; with -1 no request is refused. ``configs``: the settings under Kafka's names; DescribeConfigs
    shows them as static broker configs.
    """

    id: int
    endpoint: Endpoint
    more_endpoints: tuple[Endpoint, ...] = ()
    epoch: int = -1
    rack: str | None = None
    cluster_id: str = DEFAULT_CLUSTER_ID
    configs: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, config: BrokerConfig) -> BrokerNode:
        """Return a broker that does not listen yet: its ports are those of the config, or 0."""
        protocols = config.security_protocols()
        endpoint, *more = (
            Endpoint(name, protocols[name], *config.advertised.get(name, (host, port)))
            for name, host, port in config.listeners
        )
        return cls(
            config.id,
            endpoint,
            tuple(more),
            config.epoch,
            config.rack,
            config.cluster_id,
            config.kafka_configs(),
        )

    @property
    def broker(self) -> Broker:
        """Id, epoch, endpoints and rack: what a channel needs to connect."""
        return Broker(self.id, self.epoch, (self.endpoint, *self.more_endpoints), self.rack)
