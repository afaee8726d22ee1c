"""Authorizers of the brokers of Kafka's tests, in place of classes of the tests (``KafkaServer.scala``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Action, Authorizer, Requester

__all__ = ["AlterCredentials", "DescribeCredentials", "RequestQuota"]

_UNAUTHORIZED = "User:Unauthorized"


class _DeniesOneApi(Authorizer):
    api: ClassVar[str]

    def authorize(self, requester: Requester, actions: Sequence[Action]) -> list[bool]:
        return [requester.api != self.api or requester.principal != _UNAUTHORIZED for _ in actions]

    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        return True


class AlterCredentials(_DeniesOneApi):
    """``kafka.server.AlterCredentialsTest.TestAuthorizer``."""

    api = "AlterUserScramCredentials"


class DescribeCredentials(_DeniesOneApi):
    """``kafka.server.DescribeCredentialsTest.TestAuthorizer``."""

    api = "DescribeUserScramCredentials"


class RequestQuota(Authorizer):
    """``kafka.server.RequestQuotaTest.ZkTestAuthorizer``."""

    def authorize(self, requester: Requester, actions: Sequence[Action]) -> list[bool]:
        return [requester.principal != _UNAUTHORIZED for _ in actions]

    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        return requester.principal != _UNAUTHORIZED
