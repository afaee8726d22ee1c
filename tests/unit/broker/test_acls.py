"""Requests for ACLs: the answer to every client is that there is no authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kio.schema.errors import ErrorCode as KioError

from ctrlchan import TEMPORARY, EmbeddedCluster
from ctrlchan.errors import DecodeError
from ctrlchan.server.apis import acls
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.acl_filters import every_topic_acl
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.contexts import LOCAL_CLIENT

DESCRIBE_ACLS = 29
FIELDS: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def asked(**fields: Any) -> bytes:
    core = storing_core(1)
    handler = RequestHandler(core, {api.key: api for api in acls.APIS})
    answer = handler.serve(client_frame(DESCRIBE_ACLS, 3, **FIELDS | fields), LOCAL_CLIENT)
    assert isinstance(answer, tuple)
    return b"".join(answer)


def test_acls_are_not_described() -> None:
    answer = read_client_response(DESCRIBE_ACLS, 3, asked())
    assert answer.error_code == KioError.security_disabled
    assert answer.error_message == "No Authorizer is configured on the broker"
    assert answer.resources == ()


def test_librdkafka_shows_that_there_is_no_authorizer() -> None:
    every = every_topic_acl()
    one = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:u",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    with EmbeddedCluster(1, log_dir=TEMPORARY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for refused in (
            admin.create_acls([one], request_timeout=20)[one],
            admin.delete_acls([every], request_timeout=20)[every],
        ):
            with pytest.raises(KafkaException) as raised:
                refused.result(30)
            error = raised.value.args[0]
            assert (error.name(), error.str()) == ("SECURITY_DISABLED", "No Authorizer is configured.")


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
def test_an_unknown_kind_closes_the_connection(field: str) -> None:
    with pytest.raises(DecodeError):
        asked(**{field: 0})
