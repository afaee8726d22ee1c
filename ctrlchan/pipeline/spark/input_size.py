"""Finds out, before Spark starts, whether the inputs of a job are small."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Final

from ctrlchan.storage import PathLike

__all__ = ["SMALL_INPUTS", "are_small"]

#: Spark's name for our setting that a session is for small inputs.
SMALL_INPUTS: Final = "spark.ctrlchan.smallInputs"

#: Bytes and files of small inputs together: what one task reads within seconds.
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 1_000
#: Endings of compressed texts, and what a byte of them counts: descriptions and logs repeat themselves, and
#: gzip makes a twentieth of them.
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate")
_UNPACKED: Final = 20


def are_small(*inputs: PathLike | None) -> bool:
    """Return whether these local files, folders and patterns have few bytes in few files. None is no input.

    Inputs that cannot be seen from here, such as URLs, are not small.
    """
    size = 0
    for count, file in enumerate(_files(inputs), 1):
        try:
            size += os.stat(file).st_size * (_UNPACKED if file.endswith(_COMPRESSED) else 1)
        except OSError:
            return False
        if size > _MOST_BYTES or count > _MOST_FILES:
            return False
    return True


def _files(paths: Iterable[PathLike | None]) -> Iterator[str]:
    """Yield the files, and the path itself of an input that does not exist."""
    for path in (str(one) for one in paths if one is not None):
        for found in [path] if os.path.lexists(path) else glob.glob(path, recursive=True) or [path]:
            if os.path.isdir(found):
                yield from (
                    os.path.join(folder, name)
                    # Spark follows links, too.
                    for folder, _, names in os.walk(found, followlinks=True)
                    for name in names
                )
            else:
                yield found
