"""Principals and answers of the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.request_context import Principal

SECRET: Final = "the key of the cluster"
OWNER, RENEWER, OTHER = (Principal.user(name) for name in ("owner", "renewer", "other"))
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR


def refused(call: Callable[..., Any], *arguments: Any) -> ErrorCode:
    """Return the error of a call."""
    with pytest.raises(KafkaError) as error:
        call(*arguments)
    return ErrorCode(error.value.code)
