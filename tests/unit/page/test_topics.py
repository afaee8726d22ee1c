"""The page changes topics at the controller, also of a cluster that has just started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.page import topics


class Brokers:
    """Brokers that know nobody in their first answers."""

    def __init__(self, unknown: int) -> None:
        self.unknown = unknown

    def metadata(self, _topics: object) -> Any:
        self.unknown -= 1
        known = SimpleNamespace(node_id=2, host="h", port=9)
        return SimpleNamespace(controller_id=-1, brokers=[] if self.unknown >= 0 else [known])


def test_a_broker_that_has_just_started_is_asked_again() -> None:
    brokers: Any = Brokers(unknown=2)
    assert topics._controller(brokers) == ("h", 9)
    assert brokers.unknown == -1


def test_a_broker_that_knows_nobody_is_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_CHANGE_TIMEOUT", 0.1)
    brokers: Any = Brokers(unknown=1_000)
    with pytest.raises(KafkaError, match="knows no live broker") as raised:
        topics._controller(brokers)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE
