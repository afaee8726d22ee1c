"""Request frames of clients in any version, through kio."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kio.index import load_payload_module, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.acceptance.frames import CLIENT_ID, CORRELATION_ID

METADATA: Final = 3
API_VERSIONS: Final = 18
DESCRIBE_CONFIGS: Final = 32
DESCRIBE_CLUSTER: Final = 60


def metadata_frame(version: int, topics: Sequence[str | uuid.UUID]) -> bytes:
    """Metadata of topics by name, or by id (v10 and later), without creating any (v4 and later)."""
    module: Any = load_payload_module(METADATA, version, EntityType.request)

    def topic(key: str | uuid.UUID) -> Any:
        if version < 10:
            return module.MetadataRequestTopic(name=key)
        if isinstance(key, uuid.UUID):
            return module.MetadataRequestTopic(topic_id=key, name=None)
        return module.MetadataRequestTopic(topic_id=None, name=key)

    fields: dict[str, Any] = {"topics": tuple(map(topic, topics))}
    if version >= 4:
        fields["allow_auto_topic_creation"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    return request_frame(METADATA, version, module.MetadataRequest(**fields))


def describe_cluster_frame(version: int) -> bytes:
    module: Any = load_payload_module(DESCRIBE_CLUSTER, version, EntityType.request)
    return request_frame(
        DESCRIBE_CLUSTER,
        version,
        module.DescribeClusterRequest(include_cluster_authorized_operations=False),
    )


def describe_configs_frame(version: int, resources: Sequence[tuple[int, str]]) -> bytes:
    """DescribeConfigs of all configs of these (resource type, name), with synonyms (v1 and later)."""
    module: Any = load_payload_module(DESCRIBE_CONFIGS, version, EntityType.request)
    fields: dict[str, Any] = {
        "resources": tuple(
            module.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        )
    }
    if version >= 1:
        fields["include_synonyms"] = True
    return request_frame(DESCRIBE_CONFIGS, version, module.DescribeConfigsRequest(**fields))


def api_versions_frame(version: int) -> bytes:
    """ApiVersions; a version above kio's is its highest one with another number in the header."""
    written = min(version, 4)
    module: Any = load_payload_module(API_VERSIONS, written, EntityType.request)
    fields = {"client_software_name": "ctrlchan", "client_software_version": "1"} if written >= 3 else {}
    return request_frame(API_VERSIONS, version, module.ApiVersionsRequest(**fields))


def client_response(api_key: int, version: int, response: bytes) -> Any:
    """A client response as kio's entity."""
    schema: Any = load_response_schema(api_key, version)
    header, size = entity_reader(schema.__header_schema__)(response, 0)
    assert header.correlation_id == CORRELATION_ID
    body, _ = entity_reader(schema)(response, size)
    return body


def without_map_order(request: bytes, response: bytes | None) -> object:
    """A response so that two can be compared, without the order in which a JVM's maps come out.

    Control responses as their bytes. Kafka lists Metadata's brokers and partitions and DescribeCluster's
    brokers in the order of Scala maps that it copies with each UpdateMetadata: the order depends on earlier
    requests, and no client may rely on it. All fields, the number of bytes and the topics' order remain.
    """
    api_key, version = int.from_bytes(request[:2]), int.from_bytes(request[2:4])
    if response is None or api_key not in (METADATA, DESCRIBE_CLUSTER):
        return response
    body = client_response(api_key, version, response)
    rest = [getattr(body, name) for name in body.__dataclass_fields__ if name not in ("brokers", "topics")]
    topics = [
        (replace(topic, partitions=()), sorted(map(repr, topic.partitions)))
        for topic in getattr(body, "topics", ())
    ]
    return len(response), sorted(map(repr, body.brokers)), topics, rest


def request_frame(api_key: int, version: int, request: Any) -> bytes:
    """Return the frame of a request, without its size."""
    header: Any = type(request).__header_schema__
    frame = io.BytesIO()
    entity_writer(header)(
        frame,
        header(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=CORRELATION_ID,
            client_id=CLIENT_ID,
        ),
    )
    entity_writer(type(request))(frame, request)
    return frame.getvalue()
