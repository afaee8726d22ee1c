"""Principal builders of the brokers of Kafka's tests (``principal.builder.class``)."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

from ctrlchan.security.principals import Peer, Principal, PrincipalBuilder

__all__ = ["Harness", "OfTest"]


class Harness(PrincipalBuilder):
    """Makes the principal of who connects to the listener of ``KafkaServer.scala``: a super user."""

    def build(self, peer: Peer) -> Principal:
        return Principal.user("harness")


class OfTest(PrincipalBuilder):
    """Lets the builder of the test, a class in its JVM, make the principals: ``Principals.java``."""

    def __init__(self) -> None:
        self._path = ""
        self._class_name = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        self._path = configs["ctrlchan.tests.principals"]
        self._class_name = configs["ctrlchan.tests.principal.builder.class"]

    def build(self, peer: Peer) -> Principal:
        question = {
            "class": self._class_name,
            "listener": peer.listener,
            "protocol": peer.security_protocol.name,
            "host": peer.host,
            "user": peer.user,
            "certificateName": peer.certificate_name,
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self._path)
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return Principal(answer["type"], answer["name"])
