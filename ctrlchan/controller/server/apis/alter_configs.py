"""AlterConfigs (33) and IncrementalAlterConfigs (44): changes configs of topics and brokers.

Clients send them to any node, and may take the controller for one. The configs of brokers are the dynamic
ones: those of the controller's own id, as kafka-reassign-partitions sets and deletes for every node, or those
of all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from ctrlchan.config.parsing import check_broker_configs
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.access import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.config_requests import change_configs, decided_access, reply_to
from ctrlchan.server.kio_messages import ClientMessages

__all__ = ["ALTER", "INCREMENTAL_ALTER"]


class _Store:
    """The configs in ZooKeeper, written by the active controller. Used on the event loop's thread."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self.id = core.config.controller_id

    def has_topic(self, name: str) -> bool:
        return self._core.context.has_topic(name)

    def read_topic_config(self, name: str) -> Mapping[str, str] | None:
        return self._core.nodes.read_topic_config(name)

    def write_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        self._core.nodes.write_topic_config(name, config)

    def read_broker_config(self, broker_id: int | None) -> dict[str, str]:
        return self._core.nodes.read_broker_config(broker_id)

    def check_broker_config(
        self, _broker_id: int | None, config: Mapping[str, str], changed: Sequence[str]
    ) -> None:
        # What stays as it is a broker may have checked.
        check_broker_configs({name: config[name] for name in changed if name in config})

    def write_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        self._core.nodes.write_broker_config(broker_id, config)


def _handler(api: str) -> Callable[[ServerCore, Request], Future[Reply]]:
    def handle(core: ServerCore, request: Request) -> Future[Reply]:
        messages = ClientMessages(api, request.version)
        body = messages.decode(request)
        access = decided_access(request.access, body)

        def change(controller: ControllerCore) -> list[KafkaError | None]:
            return change_configs(_Store(controller), access, messages, body, controller.policies)

        def reply(errors: list[KafkaError | None] | KafkaError) -> Reply:
            if isinstance(errors, KafkaError):
                errors = [errors] * len(body.resources)
            return reply_to(messages, body, errors)

        return core.call(ControllerState.TOPIC_CHANGE, "AlterConfigs", change, reply)

    return handle


ALTER: Api[ServerCore] = Api(
    key=33,
    name="AlterConfigs",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_handler("alter_configs"),
    needs=asks(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER),
)
INCREMENTAL_ALTER: Api[ServerCore] = Api(
    key=44,
    name="IncrementalAlterConfigs",
    lowest=0,
    highest=1,
    flexible_from=1,
    handle=_handler("incremental_alter_configs"),
    needs=asks(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER),
)
