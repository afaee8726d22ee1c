"""Other codecs for the same bytes: kafka-clients (Java), kio and kafka-python.

Each is made with a request body and checked: it must read the body and write the same bytes. All three make
an object for each partition; encoding starts from these objects.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import warnings
import zipfile
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from kio.serial import entity_reader, entity_writer

from bench.alternate import milliseconds
from bench.peers.process import PeerProcess
from ctrlchan.protocol import API_NAMES
from tests.kafka.jars import compile_java, java_command, kafka_jars

__all__ = ["Codec", "KafkaClients", "KafkaPython", "Kio"]

_JAVA: Final = Path(__file__).parent / "kafka" / "CodecPeer.java"
_JAVA_HEAP: Final = "4g"


class Codec(Protocol):
    """A codec whose methods return the milliseconds of one call; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def decode(self) -> float: ...
    def encode(self) -> float: ...


class KafkaClients(PeerProcess):
    """kafka-clients 3.9.1 in its own JVM."""

    def __init__(self, api_key: int, version: int, body: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".body") as file:
            file.write(body)
            file.flush()
            classes = compile_java(_JAVA)
            given = (file.name, str(api_key), str(version))
            options = [f"-Xmx{_JAVA_HEAP}"]
            super().__init__(java_command("CodecPeer", *given, classes=classes, options=options))
            self.read_line()

    def decode(self) -> float:
        return float(self.ask("decode"))

    def encode(self) -> float:
        return float(self.ask("encode"))


class _InProcess:
    """A Python codec, in this process."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._message = self._read()
        assert self._write() == body, "written otherwise than read"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def decode(self) -> float:
        return milliseconds(self._read)

    def encode(self) -> float:
        return milliseconds(self._write)

    def _read(self) -> Any:
        raise NotImplementedError

    def _write(self) -> bytes:
        raise NotImplementedError


class Kio(_InProcess):
    """kio's generated classes with its native reader."""

    def __init__(self, api_key: int, version: int, body: bytes) -> None:
        name = f"{API_NAMES[api_key]}Request"
        room = re.sub(r"(?<!^)(?=[A-Z])", "_", API_NAMES[api_key]).lower()
        entity = getattr(import_module(f"kio.schema.{room}.v{version}.request"), name)
        self._reader = entity_reader(entity)
        self._writer = entity_writer(entity)
        super().__init__(body)

    def _read(self) -> Any:
        message, _ = self._reader(self._body, 0)
        return message

    def _write(self) -> bytes:
        out = io.BytesIO()
        self._writer(out, self._message)
        return out.getvalue()


class KafkaPython(_InProcess):
    """kafka-python's classes, made from Kafka's schema, because it does not include the control requests."""

    def __init__(self, api_key: int, version: int, body: bytes) -> None:
        self._class = _kafka_python_class(f"{API_NAMES[api_key]}Request")
        self._version = version
        super().__init__(body)

    def _read(self) -> Any:
        return self._class.decode(self._body, version=self._version)

    def _write(self) -> bytes:
        encoded: bytes = self._message.encode()
        return encoded


def _kafka_python_class(name: str) -> Any:
    """Let kafka-python make a class from Kafka's schema of this name."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # kafka-python reads its schemas in a way that Python 3.11 and 3.12 have deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol.api_message import ApiMessage

        package = Path(folder, "kafka_schemas")
        package.mkdir()
        (package / f"{name}.json").write_text(_kafka_schema(name))
        sys.path.append(folder)
        try:
            return type(ApiMessage)(name, (ApiMessage,), {}, load_json=package.name)
        finally:
            sys.path.remove(folder)


def _kafka_schema(name: str) -> str:
    jar = next(kafka_jars().glob("kafka-clients-*.jar"))
    with zipfile.ZipFile(jar) as files:
        return files.read(f"common/message/{name}.json").decode()
