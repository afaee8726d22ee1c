"""DescribeCluster (60): brokers, controller, cluster id.

``KafkaApis.handleDescribeCluster`` and ``AuthHelper.computeDescribeClusterResponse`` of Kafka 3.9.
"""

from __future__ import annotations

from typing import Any, Protocol

from ctrlchan.server.access import DESCRIBE_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.kio_messages import NOT_ASKED, ClientMessages, KioError

__all__ = ["API", "ClusterCore"]

_BROKERS, _CONTROLLERS = 1, 2  # endpoint types, KIP-919


class ClusterCore(Protocol):
    """What the API needs of a broker, and of a controller."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def metadata(self) -> MetadataLookups: ...


def _handle(core: ClusterCore, request: Request) -> Reply:
    messages = ClientMessages("describe_cluster", request.version)
    body = messages.decode(request)
    endpoint_type = getattr(body, "endpoint_type", _BROKERS)
    if endpoint_type == _BROKERS:
        return _reply(messages, **_cluster(core, request, messages, body))
    if endpoint_type == _CONTROLLERS:
        error = KioError.mismatched_endpoint_type
        text = "The request was sent to an endpoint of type BROKER, but we wanted one of type CONTROLLER"
    else:
        error = KioError.unsupported_endpoint_type
        text = f"Unsupported endpoint type {endpoint_type}"
    return _reply(messages, error_code=error, error_message=text, cluster_id="", controller_id=-1, brokers=())


API = Api(
    key=60,
    name="DescribeCluster",
    lowest=0,
    highest=1,
    flexible_from=0,
    handle=_handle,
    locks_core=False,
    needs=asks(DESCRIBE_CLUSTER),
)


def _cluster(core: ClusterCore, request: Request, messages: ClientMessages, body: Any) -> dict[str, Any]:
    listener = request.context.listener
    with core.metadata.state.lock:
        nodes = core.metadata.nodes(listener)
        controller = core.metadata.controller(listener)
    return {
        "error_code": KioError.none,
        "cluster_id": core.cluster_id,
        # A controller that is not among the brokers of the answer would only confuse a client.
        "controller_id": controller if any(node.id == controller for node in nodes) else -1,
        "brokers": tuple(
            messages.part(
                "DescribeClusterBroker", broker_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in nodes
        ),
        "cluster_authorized_operations": (
            request.access.cluster_operations() if body.include_cluster_authorized_operations else NOT_ASKED
        ),
    }


def _reply(messages: ClientMessages, **fields: Any) -> Reply:
    return Reply(messages.response(**fields), error_code=fields["error_code"].value)
