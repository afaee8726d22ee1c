"""The keys of ``server.properties`` that secure a session with ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.security_properties import zookeeper_security
from ctrlchan.zookeeper.settings import SaslSettings, TlsSettings

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
KEY = "java.security.auth.login.config"
TLS = {"zookeeper.ssl.client.enable": "true"}


def read(entries: dict[str, str]) -> dict[str, object]:
    return zookeeper_security(PropertiesFile.read(entries))


def jaas(folder: Path, text: str) -> str:
    file = folder / "jaas.conf"
    file.write_text(text)
    return str(file)


def test_nothing() -> None:
    # The other keys of TLS count only where it is enabled.
    assert read({"zookeeper.ssl.truststore.location": "/t.p12", "zookeeper.set.acl": "false"}) == {}


def test_tls() -> None:
    given = {
        "zookeeper.ssl.truststore.location": "/t.p12",
        "zookeeper.ssl.truststore.password": "trusted",
        "zookeeper.ssl.keystore.location": "/k.jks",
        "zookeeper.ssl.keystore.password": "s3cret",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.ssl.enabled.protocols": "TLSv1.3",
        "zookeeper.ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
        "zookeeper.set.acl": "true",
    }
    found = read(TLS | given)
    assert found == {
        "tls": TlsSettings(
            ca="/t.p12",
            truststore_password="trusted",
            certificate="/k.jks",
            key="/k.jks",
            key_password="s3cret",
            verify_host=False,
            versions=("TLSv1.3",),
            cipher_suites=("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"),
        ),
        "set_acl": True,
    }
    assert "s3cret" not in repr(found)
    assert "trusted" not in repr(found)


def test_sasl_of_the_entry_client(tmp_path: Path) -> None:
    file = jaas(tmp_path, f'Client {{ {DIGEST} required username="kafka" password="s3cret"; }};')
    found = read({KEY: file, "zookeeper.set.acl": "true"})
    assert found == {"sasl": SaslSettings(username="kafka", password="s3cret"), "set_acl": True}
    assert "s3cret" not in repr(found)
    assert read({KEY: file, "zookeeper.sasl.client": "false"}) == {}


def test_sasl_of_another_entry(tmp_path: Path) -> None:
    file = jaas(tmp_path, f"KafkaServer {{ }}; Zk {{ {DIGEST} required username=a password=b; }};")
    assert read({KEY: file}) == {}
    assert read({KEY: file, "zookeeper.sasl.clientconfig": "Zk"}) == {
        "sasl": SaslSettings(username="a", password="b")
    }


BAD_JAAS = {
    "Client { };": "entry Client has 0 login modules",
    f"Client {{ {DIGEST} required; }};": "username and password: one of them is missing",
    "Client { x.Other required; };": "its login module is neither DigestLoginModule nor Krb5LoginModule",
    f"Client {{ {DIGEST} required password=s3cret }};": "';' is missing",
}


@pytest.mark.parametrize("text", BAD_JAAS)
def test_a_bad_jaas_file_is_named(tmp_path: Path, text: str) -> None:
    file = jaas(tmp_path, text)
    with pytest.raises(ConfigError, match=BAD_JAAS[text]) as raised:
        read({KEY: file})
    assert str(raised.value).startswith(f"properties: {KEY}: {file}: ")
    assert "s3cret" not in str(raised.value)


def test_a_jaas_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{KEY}: .*: No such file"):
        read({KEY: str(tmp_path / "missing")})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"zookeeper.set.acl": "yes"}, r"zookeeper\.set\.acl: Expected value to be either true or false"),
        (TLS | {"zookeeper.ssl.crl.enable": "true"}, r"zookeeper\.ssl\.crl\.enable: revoked"),
        (TLS | {"zookeeper.ssl.keystore.type": "BKS"}, r"zookeeper\.ssl\.keystore\.type: 'BKS' is not PEM"),
    ],
)
def test_what_is_refused(entries: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(entries)
