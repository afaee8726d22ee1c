"""OAUTHBEARER with signed tokens: keys in a file or behind a URL, tokens that are wrong, keys that change.

Twins of Kafka's ValidatorAccessTokenValidatorTest, RefreshingHttpsJwksTest and
OAuthBearerValidatorCallbackHandlerTest. Left out: scopes, which Kafka reads and asks nobody about.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from ctrlchan.broker.config.listener_configs import security_of
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.token_settings import SignedTokenSettings
from ctrlchan.server.security import jwks
from ctrlchan.server.security.jwks import JwksEndpoint, JwksFile, open_keys
from ctrlchan.server.security.listener import sasl_listener
from ctrlchan.server.security.oauthbearer import InvalidTokenError
from ctrlchan.server.security.signed_tokens import SignedTokens
from tests.kafka.waiting import wait_until

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str | None = None, **more: str) -> dict[str, Any]:
    algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    found: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    return (
        {name: value for name, value in found.items() if name != "key_ops"}
        | more
        | ({} if kid is None else {"kid": kid})
    )


def keys_file(folder: Path, *keys: dict[str, Any]) -> Path:
    file = folder / "jwks.json"
    file.write_text(json.dumps({"keys": list(keys)}))
    return file


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
    values = {"sub": "alice", "iat": time.time() - 1, "exp": time.time() + 600} | claims
    return jwt.encode(
        {name: value for name, value in values.items() if value is not None},
        key,
        algorithm=algorithm,
        headers={} if kid is None else {"kid": kid},
    )


def validator(file: Path, **settings: Any) -> SignedTokens:
    found = SignedTokenSettings(jwks_url=file.as_uri(), **settings)
    return SignedTokens(found, open_keys(found))


@pytest.fixture
def signed(tmp_path: Path) -> SignedTokens:
    return validator(keys_file(tmp_path, jwk(RSA, "one"), jwk(EC, "two"), jwk(OTHER, "three")))


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS384"])
def test_a_token_names_the_peer(signed: SignedTokens, algorithm: str) -> None:
    expires = int(time.time()) + 600
    found = signed(token(algorithm=algorithm, exp=expires))
    assert found == ("alice", expires * 1000)


def test_other_keys_and_tokens_without_a_name_of_theirs(signed: SignedTokens) -> None:
    assert signed(token(EC, "ES256", "two")).principal == "alice"
    assert signed(token(OTHER, kid=None)).principal == "alice"


def test_settings(tmp_path: Path) -> None:
    found = validator(
        keys_file(tmp_path, jwk(RSA, "one")),
        audience=("a", "b"),
        issuer="us",
        subject_claim="name",
        clock_skew_seconds=30,
    )
    claims: dict[str, Any] = {"aud": "b", "iss": "us", "name": "carol", "exp": time.time() - 10}
    assert found(token(**claims)).principal == "carol"
    for wrong in ({"aud": "c"}, {"aud": None}, {"iss": "them"}, {"iss": None}, {"name": None}):
        with pytest.raises(InvalidTokenError):
            found(token(**claims | wrong))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"exp": 1}, "expired"),
        ({"nbf": 2**33}, "not yet valid"),
        ({"sub": None}, "claim sub names nobody"),
        ({"sub": " "}, "claim sub names nobody"),
        ({"aud": "somebody"}, "[Aa]udience"),
    ],
)
def test_claims_that_are_wrong(signed: SignedTokens, claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        signed(token(**claims))


@pytest.mark.parametrize(
    "text", ["", "  ", "..", "{0}..{2}", ".{1}.{2}", "{0}.{1}.", "{0}.{1}", "{1}.{0}.{2}"]
)
def test_texts_that_are_no_tokens(signed: SignedTokens, text: str) -> None:
    with pytest.raises(InvalidTokenError):
        signed(text.format(*token().split(".")))


@pytest.mark.parametrize("expires", ['"soon"', "[]", "1e999", "NaN", "true", "1" * 5000])
def test_times_that_are_no_numbers(signed: SignedTokens, expires: str) -> None:
    """PyJWT makes no such token: its parts are put together here."""
    algorithm = RSAAlgorithm(RSAAlgorithm.SHA256)
    head = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"one"}').rstrip(b"=")
    text = f'{{"sub":"alice","iat":1,"exp":{expires}}}'
    body = head + b"." + base64.urlsafe_b64encode(text.encode()).rstrip(b"=")
    signature = base64.urlsafe_b64encode(algorithm.sign(body, RSA)).rstrip(b"=")
    with pytest.raises(InvalidTokenError):
        signed((body + b"." + signature).decode())


def test_tokens_that_another_has_signed(signed: SignedTokens) -> None:
    with pytest.raises(InvalidTokenError, match=r"[Ss]ignature"):
        signed(token(OTHER, kid="one"))
    with pytest.raises(InvalidTokenError, match="key is not known"):
        signed(token(kid="four"))
    whole = token()
    for wrong in (whole[:-4], whole.rpartition(".")[0] + ".", whole + "A", "", "a.b", "a.b.c", "." * 1000):
        with pytest.raises(InvalidTokenError):
            signed(wrong)


def test_algorithms_that_prove_nothing(signed: SignedTokens) -> None:
    """No signature, and a signature with the public key, which everybody has."""
    with pytest.raises(InvalidTokenError, match="key is not known"):
        signed(jwt.encode({"sub": "alice", "iat": 1, "exp": 2**33}, "", algorithm="none"))
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, claims, _ = token().split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"one"}').rstrip(b"=").decode()
    signature = hmac.digest(public, f"{head}.{claims}".encode(), "sha256")
    forged = f"{head}.{claims}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    with pytest.raises(InvalidTokenError, match="key is not known"):
        signed(forged)


def test_keys_that_are_left_out(tmp_path: Path) -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I", "kid": "secret"}
    found = validator(keys_file(tmp_path, secret, jwk(RSA, "one", use="enc"), jwk(OTHER, "two", alg="RS512")))
    with pytest.raises(InvalidTokenError, match="key is not known"):
        found(token(b"secret-secret-secret-secret-secr", "HS256", "secret"))
    with pytest.raises(InvalidTokenError, match="key is not known"):
        found(token(kid="one"))
    with pytest.raises(InvalidTokenError, match="key is not known"):
        found(token(OTHER, "RS256", "two"))
    assert found(token(OTHER, "RS512", "two")).principal == "alice"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"keys":{}}', '{"keys":[1]}', "[" * 100_000])
def test_a_file_that_is_no_jwks(tmp_path: Path, text: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"jwks\.json: "):
        JwksFile(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        JwksFile(str(tmp_path / "other"))


def test_a_file_that_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = keys_file(tmp_path, jwk(RSA, "one"))
    now = [0.0]
    keys = JwksFile(str(file), lambda: now[0])
    found = SignedTokens(SignedTokenSettings(jwks_url=file.as_uri()), keys)
    keys_file(tmp_path, jwk(OTHER, "two"))
    os.utime(file, (1, 1))
    with pytest.raises(InvalidTokenError, match="key is not known"):
        # It was read less than ten seconds ago.
        found(token(OTHER, kid="two"))
    now[0] = 11
    assert found(token(OTHER, kid="two")).principal == "alice"
    file.write_text("{")
    now[0] = 22
    with pytest.raises(InvalidTokenError):
        found(token(RSA, kid="one"))
    assert "the keys of tokens stay as they were" in caplog.text
    assert found(token(OTHER, kid="two")).principal == "alice"


class Endpoint(BaseHTTPRequestHandler):
    keys: ClassVar[list[dict[str, Any]] | None] = []
    asked = 0
    speaks_http = True

    def do_GET(self) -> None:
        type(self).asked += 1
        if not self.speaks_http:
            self.wfile.write(b"no status line\r\n")
            return
        if self.keys is None:
            self.send_error(503)
            return
        data = json.dumps({"keys": self.keys}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def endpoint(*keys: dict[str, Any]) -> Iterator[tuple[str, type[Endpoint]]]:
    handler = type("Handler", (Endpoint,), {"keys": list(keys)})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys", handler
        finally:
            server.shutdown()
            thread.join()


def test_keys_behind_a_url(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """They are asked for again when a token names another one, and stay while nobody answers."""
    monkeypatch.setattr(jwks, "_PAUSE_SECONDS", 0.0)
    with endpoint(jwk(RSA, "one")) as (url, handler):
        settings = SignedTokenSettings(jwks_url=url, retry_backoff_ms=10, retry_backoff_max_ms=20)
        keys = open_keys(settings)
        assert isinstance(keys, JwksEndpoint)
        found = SignedTokens(settings, keys)
        assert found(token()).principal == "alice"
        handler.keys = None
        with pytest.raises(InvalidTokenError):
            found(token(OTHER, kid="two"))
        wait_until(lambda: "stay as they were" in caplog.text, what="a refresh that failed")
        assert found(token()).principal == "alice"
        handler.speaks_http = False
        wait_until(lambda: "an answer that is not HTTP: BadStatusLine" in caplog.text, what="another one")
        handler.speaks_http = True
        handler.keys = [jwk(OTHER, "two")]
        wait_until(lambda: keys.current()[0]["kid"] == "two", what="the next refresh")
        assert found(token(OTHER, kid="two")).principal == "alice"
        keys.close()


def test_tokens_with_unknown_keys_do_not_make_requests() -> None:
    with endpoint(jwk(RSA, "one")) as (url, handler):
        settings = SignedTokenSettings(jwks_url=url)
        keys = open_keys(settings)
        found = SignedTokens(settings, keys)
        for number in range(100):
            with pytest.raises(InvalidTokenError):
                found(token(kid=f"unknown {number}"))
        keys.close()
        assert handler.asked == 1


@pytest.mark.parametrize("url", ["ftp://h/x", "http:", "jwks.json", "http://127.0.0.1:1/keys"])
def test_urls_without_keys(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_keys(SignedTokenSettings(jwks_url=url))
    assert str(refused.value).startswith(f"{url}: ")


PACKAGE, HANDLER = "org.apache.kafka.common.security.oauthbearer.", "OAuthBearerValidatorCallbackHandler"


@pytest.mark.parametrize(
    ("mechanism", "handler", "problem"),
    [
        ("oauthbearer", f"{PACKAGE}{HANDLER}", f"{HANDLER} needs sasl.oauthbearer.jwks.endpoint.url"),
        ("oauthbearer", f"{PACKAGE}secured.{HANDLER}", f"{HANDLER} needs sasl.oauthbearer.jwks.endpoint.url"),
        ("oauthbearer", "com.example.Tokens", "a class of Java is not run here: com.example.Tokens"),
        ("plain", "com.example.Ldap", "a class of Java is not run here: com.example.Ldap"),
    ],
)
def test_who_shall_be_checked_otherwise_is_not_let_in(mechanism: str, handler: str, problem: str) -> None:
    """Unsigned tokens must not be taken where Kafka would want signed ones."""
    key = f"listener.name.x.{mechanism}.sasl.server.callback.handler.class"
    with pytest.raises(ConfigError) as refused:
        security_of(
            {
                "sasl.enabled.mechanisms": mechanism.upper(),
                "listener.name.x.oauthbearer.sasl.jaas.config": "a.OAuthBearerLoginModule required;",
                "listener.name.x.plain.sasl.jaas.config": 'a.PlainLoginModule required user_a="b";',
                key: handler,
            },
            "X",
            SecurityProtocol.SASL_PLAINTEXT,
        )
    assert f"{key}: {problem}" in str(refused.value)


def test_settings_of_a_listener(tmp_path: Path) -> None:
    file = keys_file(tmp_path, jwk(RSA, "one"))
    security = security_of(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.x.oauthbearer.sasl.jaas.config": "a.OAuthBearerLoginModule required;",
            "listener.name.x.sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
            "listener.name.x.oauthbearer.sasl.server.callback.handler.class": f"{PACKAGE}{HANDLER}",
            "listener.name.x.oauthbearer.sasl.oauthbearer.expected.audience": "a,b",
            "sasl.oauthbearer.expected.audience": "of other listeners",
            "sasl.oauthbearer.expected.issuer": "us",
            "sasl.oauthbearer.clock.skew.seconds": "7",
            "sasl.oauthbearer.sub.claim.name": "name",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "5",
        },
        "X",
        SecurityProtocol.SASL_PLAINTEXT,
    )
    assert security.signed_tokens == SignedTokenSettings(
        jwks_url=file.as_uri(),
        audience=("a", "b"),
        issuer="us",
        clock_skew_seconds=7,
        subject_claim="name",
        refresh_ms=5,
    )
    listener = sasl_listener("X", security, lambda *_: None)
    assert listener.names == ("OAUTHBEARER",)
    listener.close()
