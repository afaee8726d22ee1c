"""Kafka's own message classes in a Java process (Oracle.java describes the protocol of lines)."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from tests.conformance.java_process import JavaProcess

Json = Any


class OracleRefusal(Exception):
    """An exception of Kafka's classes; the text is its class and message."""


class Oracle:
    """One Java process with kafka-clients 3.9.1 on its class path; a context manager."""

    def __init__(self) -> None:
        self._java = JavaProcess("Oracle", shows_errors=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._java.close()

    def write(self, message: str, version: int, value: Json) -> bytes:
        """Convert JSON with JsonConverter.read to the message's bytes. Raises OracleRefusal."""
        return bytes.fromhex(self._ask(f"write {message} {version} {json.dumps(value)}"))

    def read(self, message: str, version: int, data: bytes) -> tuple[Json, int]:
        """Convert bytes with JsonConverter.write to JSON; also returns how many bytes were left over.

        Raises OracleRefusal.
        """
        remaining, text = self._ask(f"read {message} {version} {data.hex()}").split(" ", 1)
        return json.loads(text), int(remaining)

    def _ask(self, line: str) -> str:
        kind, _, rest = self._java.ask(line).partition(" ")
        if kind == "error":
            raise OracleRefusal(rest)
        if kind != "ok":
            raise RuntimeError("the Java process died (its standard error is above)")
        return rest
