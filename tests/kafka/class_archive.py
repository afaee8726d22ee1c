"""An archive of the classes of a Kafka broker: a JVM that has it starts in half the processor time.

``python -m tests.kafka.class_archive`` (``make test`` runs it) makes the archive once for each checkout, by
class-data sharing of one broker's JVM. Without it, or with another Java, tests are slower and nothing else.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.kafka.jars import BUILD, KafkaUnavailableError

__all__ = ["JVM_OPTIONS", "make"]

_ARCHIVE: Final = BUILD / "kafka-classes.jsa"
#: Of an archive that does not fit, the JVM would warn on standard output.
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")

#: For each JVM that runs Kafka's classes for seconds.
JVM_OPTIONS: Final = (f"-XX:SharedArchiveFile={_ARCHIVE}", *_SILENT) if _ARCHIVE.exists() else ()


def make() -> None:
    """Make the archive, unless it is there. The broker's JVM writes it when it ends."""
    from tests.kafka.rig import KafkaRig

    if _ARCHIVE.exists():
        return
    print(
        "making an archive of Kafka's classes for the tests (once; half a minute)",
        file=sys.stderr,
        flush=True,
    )
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        new = Path(folder) / _ARCHIVE.name
        with KafkaRig(
            Path(folder) / "rig", brokers=1, jvm_options=(f"-XX:ArchiveClassesAtExit={new}", *_SILENT)
        ) as rig:
            rig.stop_broker(1)
        if new.exists():
            new.rename(_ARCHIVE)


if __name__ == "__main__":
    # Without Java or Maven the tests of real Kafka say what is missing.
    with contextlib.suppress(KafkaUnavailableError):
        make()
