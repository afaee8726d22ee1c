"""A channel with OAUTHBEARER: its senders get a token, and a new one before it expires."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from pathlib import Path

import pytest

from ctrlchan import ChannelConfig, ControllerChannelManager
from ctrlchan.channel.token_renewal import TokenRenewal
from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.errors import ConfigError
from ctrlchan.security.settings import SaslSettings, TokenSettings
from tests.fault.channels import eventually


def sasl(lifetime: int = 3600) -> SaslSettings:
    return SaslSettings(
        mechanism="OAUTHBEARER", tokens=TokenSettings(claims={"sub": "alice"}, lifetime=lifetime)
    )


class User:
    """Keeps the settings that it is given."""

    def __init__(self) -> None:
        self.used: list[SaslSettings] = []

    def use(self, settings: SaslSettings) -> None:
        self.used.append(settings)


def token_threads() -> int:
    return sum(thread.name == "channel-tokens" for thread in threading.enumerate())


def test_a_new_token_comes_in_time_and_the_thread_ends() -> None:
    user = User()
    renewal = TokenRenewal(sasl(lifetime=1), weakref.WeakMethod(user.use))
    renewal.start()
    eventually(lambda: len(user.used) >= 2, 20)
    tokens = {renewal.first.token, *(one.token for one in user.used)}
    assert len(tokens) == len(user.used) + 1
    renewal.stop()
    eventually(lambda: token_threads() == 0, 20)


def test_the_thread_ends_with_its_user() -> None:
    user = User()
    TokenRenewal(sasl(lifetime=1), weakref.WeakMethod(user.use)).start()
    del user
    gc.collect()
    eventually(lambda: token_threads() == 0, 20)


def test_no_token_at_the_start(tmp_path: Path) -> None:
    tokens = TokenSettings(endpoint=(tmp_path / "token").as_uri())
    config = ChannelConfig(
        security_protocol="SASL_PLAINTEXT", sasl=SaslSettings(mechanism="OAUTHBEARER", tokens=tokens)
    )
    with pytest.raises(ConfigError, match=r"sasl: no token: .*No such file"):
        ControllerChannelManager(config)


def test_senders_get_the_token_and_not_what_it_is_made_of() -> None:
    config = ChannelConfig(security_protocol="SASL_PLAINTEXT", sasl=sasl())
    with ControllerChannelManager(config) as channel:
        credentials = channel.config.credentials
        assert credentials.sasl is not None
        assert credentials.sasl.token is not None
        data = credentials.to_json()
        assert "tokens" not in json.loads(data)["sasl"]
        sent = Credentials.from_json(data).sasl
        assert sent is not None
        assert sent.token == credentials.sasl.token
        assert credentials.sasl.token not in repr(channel.config)
