"""A session over TLS: the server's certificate is verified, and the client has one of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ctrlchan.errors import ZooKeeperError
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import TlsSettings, ZooKeeperSettings
from tests.kafka.ports import free_port
from tests.kafka.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of the authority, of the server (localhost), and of a client."""
    made, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(made / "ca.pem")
    trustme.CA().cert_pem.write_to_path(made / "other-ca.pem")
    server = authority.issue_cert("localhost")
    (made / "server.pem").write_bytes(
        _pkcs8(server) + b"".join(one.bytes() for one in server.cert_chain_pems)
    )
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(made / "client.pem")
    return made


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Return the private key in the form that Java reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server that asks clients for certificates."""
    port = free_port()
    configuration = (
        f"secureClientPort={port}\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={folder / 'server.pem'}\n"
        f"ssl.trustStore.location={folder / 'ca.pem'}\n"
        "ssl.clientAuth=need\n"
    )
    with ZooKeeperServer(folder / "zookeeper", configuration=configuration):
        yield f"localhost:{port}"


def test_a_session_over_tls(folder: Path, address: str) -> None:
    pem = str(folder / "client.pem")
    tls = TlsSettings(ca=str(folder / "ca.pem"), certificate=pem, key=pem)
    # The certificate is the creator of the nodes.
    with ZooKeeperSession(ZooKeeperSettings(connect=address, tls=tls, set_acl=True)) as one:
        one.create("/tls", b"1")
        assert [node and node.data for node in one.get_many(["/tls"])] == [b"1"]
        one.delete("/tls")


@pytest.mark.parametrize(
    "tls",
    [
        TlsSettings(ca="other-ca.pem", certificate="client.pem", key="client.pem"),
        TlsSettings(ca="ca.pem"),
        None,
    ],
    ids=["another authority", "no certificate", "no TLS"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_what_does_not_connect(folder: Path, address: str, tls: TlsSettings | None) -> None:
    if tls is not None:
        ca, certificate, key = (name and str(folder / name) for name in (tls.ca, tls.certificate, tls.key))
        tls = TlsSettings(ca=ca, certificate=certificate, key=key)
    one = ZooKeeperSession(ZooKeeperSettings(connect=address, tls=tls))
    with pytest.raises(ZooKeeperError, match=f"zookeeper {address}: no connection within 1.5 s"):
        one.start(1.5)
    del one
    # kazoo leaves sockets whose handshake failed to the garbage collector.
    gc.collect()
