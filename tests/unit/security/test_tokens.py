"""Tokens of OAUTHBEARER: unsecured, from a file, from an identity provider; kept until they are old."""

from __future__ import annotations

import json
import threading
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.mechanisms import MechanismError, client_mechanism
from ctrlchan.security.settings import SaslSettings, TokenSettings
from ctrlchan.security.tokens import TokenSource, fetch_token, token_settings, unsecured_token

NOW = 1_000_000.0
SECRET = "s3cret"


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def header_of(token: str) -> Any:
    part = token.split(".")[0]
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@contextmanager
def provider(status: int, body: bytes) -> Iterator[tuple[str, list[tuple[Any, bytes]]]]:
    """An identity provider with one answer: its URL, and what it is asked."""
    asked: list[tuple[Any, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


def of_endpoint(url: str) -> TokenSettings:
    return TokenSettings(endpoint=url, client_id="broker", client_secret=SECRET, scope="kafka")


def test_an_unsecured_token() -> None:
    settings, extensions = token_settings(
        {
            "unsecuredLoginStringClaim_sub": "alice",
            "unsecuredLoginNumberClaim_level": "3",
            "unsecuredLoginListClaim_scope": "|a|b",
            "unsecuredLoginLifetimeSeconds": "60",
            "unsecuredLoginExtension_traceId": "7",
        },
        None,
    )
    assert extensions == {"traceId": "7"}
    token = fetch_token(settings, NOW)
    assert token.expires == NOW + 60
    assert header_of(token.text) == {"alg": "none"}
    assert claims_of(token.text) == {
        "sub": "alice",
        "level": 3,
        "scope": ["a", "b"],
        "iat": NOW,
        "exp": NOW + 60,
    }
    assert token.text.endswith(".")
    assert token.text not in repr(token)


def test_client_credentials() -> None:
    token = unsecured_token({"sub": "x"}, 100, NOW).text
    with provider(200, json.dumps({"access_token": token, "expires_in": 9}).encode()) as (url, asked):
        # The time of the token's own claims counts.
        assert fetch_token(of_endpoint(url), NOW) == (token, NOW + 100)
    [(headers, body)] = asked
    assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"broker:s3cret"
    assert parse_qs(body.decode()) == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_a_token_that_is_no_jwt_has_the_time_of_the_answer() -> None:
    with provider(200, b'{"access_token": "opaque", "expires_in": 9}') as (url, _):
        assert fetch_token(of_endpoint(url), NOW) == ("opaque", NOW + 9)


BAD_ANSWERS = {
    "refused": (401, b'{"error": "invalid_client s3cret"}', r"status 401: .*invalid_client \*{8}"),
    "no json": (200, b"hello", "without an access_token"),
    "no token": (200, b"{}", "without an access_token"),
    "no time": (200, b'{"access_token": "opaque"}', "does not say when it expires"),
    "expired": (200, b'{"access_token": "opaque", "expires_in": 0}', "has expired"),
    "a token with a mark": (200, b'{"access_token": "a\\u0001b", "expires_in": 9}', "no token has"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_says_why(case: str) -> None:
    status, body, reason = BAD_ANSWERS[case]
    with provider(status, body) as (url, _), pytest.raises(ValueError, match=reason) as raised:
        fetch_token(of_endpoint(url), NOW)
    assert SECRET not in str(raised.value)


def test_a_token_in_a_file(tmp_path: Path) -> None:
    token = unsecured_token({"sub": "x"}, 100, NOW).text
    file = tmp_path / "a token"
    file.write_text(token + "\n")
    assert fetch_token(TokenSettings(endpoint=file.as_uri()), NOW) == (token, NOW + 100)


def test_a_token_is_replaced_before_it_expires() -> None:
    now = [NOW]
    settings = SaslSettings(
        mechanism="OAUTHBEARER", tokens=TokenSettings(claims={"sub": "alice"}, lifetime=100)
    )
    source = TokenSource(settings, lambda: now[0])
    first = source.current()
    now[0] += 79
    assert source.current() == first
    now[0] += 1
    second = source.current()
    assert second.token != first.token
    assert second.token is not None
    assert second.token not in repr(second)


def test_an_old_token_is_used_while_no_new_one_can_be_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [NOW]
    file = tmp_path / "token"
    file.write_text(unsecured_token({"sub": "x"}, 100, NOW).text)
    settings = SaslSettings(mechanism="OAUTHBEARER", tokens=TokenSettings(endpoint=file.as_uri()))
    source = TokenSource(settings, lambda: now[0])
    first = source.current()
    file.unlink()
    now[0] += 90
    assert source.current() == first
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "the one before is still valid: [Errno 2] No such file" in caplog.text
    now[0] += 10
    with pytest.raises(ConnectionFailed, match=r"no token: .*No such file") as raised:
        source.current()
    assert raised.value.failure is Failure.CREDENTIALS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a user"),
        ({"claims": {"sub": "a"}, "lifetime": 0}, "lifetime: 0"),
        ({"endpoint": "ftp://host/token"}, "no URL of https"),
        ({"endpoint": "https://host/token", "client_id": "a"}, "client_secret"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenSettings(**settings)


def test_the_exchange_of_a_token_that_is_accepted() -> None:
    sasl = SaslSettings(mechanism="OAUTHBEARER", token="t0ken", extensions={"traceId": "7"})
    exchange = client_mechanism(sasl, "host")
    assert exchange.begin() == b"n,,\x01auth=Bearer t0ken\x01traceId=7\x01\x01"
    assert exchange.proceed(b"") is None


def test_the_exchange_of_a_token_that_is_refused() -> None:
    exchange = client_mechanism(SaslSettings(mechanism="OAUTHBEARER", token="t0ken"), "host")
    exchange.begin()
    assert exchange.proceed(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(MechanismError, match="invalid_token"):
        exchange.proceed(b"")
