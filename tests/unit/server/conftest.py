"""Tests of listeners with TLS run twice: with OpenSSL by itself, and with Python's ssl."""

from __future__ import annotations

import pytest

from ctrlchan.server.tls_contexts import PYTHON_TLS


@pytest.fixture(params=["libssl", "python"])
def each_tls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let servers of the test use one way to do TLS after the other; return which one."""
    way: str = request.param
    monkeypatch.setenv(PYTHON_TLS, "1" if way == "python" else "0")
    return way
