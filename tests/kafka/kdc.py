"""A KDC for tests: Kafka's MiniKdc, on a free port of this machine, with all its principals in one keytab.

with Kdc(folder, ["kafka/localhost", "alice"]) as kdc:
    kdc.keytab                  # has the keys of kafka/localhost@EXAMPLE.COM and alice@EXAMPLE.COM
    os.environ | kdc.environment        # for C's Kerberos and for Java

with running_kdc(folder, ["kafka/localhost"]) as kdc:       # in a fixture: this process has its environment
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from tests.kafka.jars import (
    SHORT_LIVED,
    KafkaUnavailableError,
    Report,
    fetched_jars,
    java_command,
    report_on_stderr,
)
from tests.kafka.processes import Child, Reaper
from tests.kafka.requirement import miss, require_gssapi
from tests.kafka.waiting import wait_until

__all__ = ["KDC_EXPORTS", "REALM", "Kdc", "kdc_jars", "login_module", "running_kdc", "with_wrong_keys"]

REALM: Final = "EXAMPLE.COM"
_POM: Final = Path(__file__).with_name("kdc.pom.xml")
#: Of the JVM of a KDC, which reads its krb5.conf again by a class of Java's own.
KDC_EXPORTS: Final = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
_MAIN: Final = "kafka.security.minikdc.MiniKdc"


class Kdc:
    """A context manager. Its files go to `folder`.

    ``principals``: names without the realm; the first one is that of clients that name none. Raises
    KafkaUnavailableError where Java or Maven is missing.
    """

    def __init__(self, folder: Path, principals: Sequence[str], report: Report = report_on_stderr) -> None:
        self.keytab = str(folder / "all.keytab")
        self._folder = folder
        self._reaper = Reaper()
        settings = folder / "minikdc.properties"
        settings.write_text("kdc.bind.address=localhost\n")
        command = java_command(
            _MAIN,
            *(str(folder), str(settings), self.keytab, *principals),
            jars=kdc_jars(report),
            options=(*SHORT_LIVED, KDC_EXPORTS, "-Xmx128m"),
        )
        self._child = Child("the KDC", command, folder / "kdc.log", self._reaper)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program needs to use the KDC: its ``krb5.conf``, and no tickets of this machine's user.

        A client of C's library that names no keytab is the first principal.
        """
        file = self._folder / "krb5.conf"
        return {
            "KRB5_CONFIG": str(file),
            "KRB5_CLIENT_KTNAME": self.keytab,
            "KRB5CCNAME": f"FILE:{self._folder / 'tickets'}",
            "KRB5RCACHENAME": f"file2:{self._folder / 'replays'}",
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={file}",
        }

    def __enter__(self) -> Kdc:
        log = self._folder / "kdc.log"

        def runs() -> bool:
            self._child.check_alive()
            return "Standalone MiniKdc Running" in log.read_text()

        try:
            wait_until(runs, timeout=180, what="the KDC")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the KDC."""
        self._child.kill()
        self._reaper.close()


def kdc_jars(report: Report = report_on_stderr) -> Path:
    """The folder of the KDC's jars, without Kafka's. Raises KafkaUnavailableError, as ``kafka_jars``."""
    return fetched_jars(_POM, "kdc-jars", "a KDC for tests (25 MB)", report)


def login_module(keytab: str, principal: str, **options: str) -> str:
    """Return a value of ``sasl.jaas.config`` that logs in with a keytab."""
    words = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": f"{principal}@{REALM}"}
    text = " ".join(f'{name}="{value}"' for name, value in (words | options).items())
    return f"com.sun.security.auth.module.Krb5LoginModule required {text};"


@contextmanager
def running_kdc(folder: Path, principals: Sequence[str]) -> Iterator[Kdc]:
    """Yield a KDC that this process and its children use. Skip the calling test where there can be none."""
    require_gssapi()
    try:
        kdc = Kdc(folder, principals)
    except KafkaUnavailableError as error:
        miss("a KDC", error)
    with kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield kdc


def with_wrong_keys(keytab: Path) -> Path:
    """Write a keytab with the same principals, and keys that the KDC does not have, beside another one.

    ::

        0x0502, then for each key:  int32 size of what follows
        int16 number of names, realm and names each behind its int16 size, int32 kind of name, int32 time,
        int8 version, int16 cipher, int16 size of the key, key, (int32 version)
    """
    data = bytearray(keytab.read_bytes())
    entry = 2
    while entry < len(data):
        (size,) = struct.unpack_from(">i", data, entry)
        at = entry + 4
        (names,) = struct.unpack_from(">h", data, at)
        at += 2
        for _ in range(names + 1):
            at += 2 + struct.unpack_from(">h", data, at)[0]
        at += 4 + 4 + 1 + 2
        (length,) = struct.unpack_from(">h", data, at)
        for index in range(at + 2, at + 2 + length):
            data[index] ^= 0xFF
        entry += 4 + size
    wrong = keytab.with_suffix(".wrong")
    wrong.write_bytes(data)
    return wrong
