"""Divides Parquet files into pieces, one for a task, and reads the wanted rows of a piece.

A piece is some row groups of a file. Row groups whose statistics exclude every wanted row belong to no piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ctrlchan.errors import PipelineError
from ctrlchan.storage import path_of
from ctrlchan.storage.parquet import arrow_file, unreadable

__all__ = ["Piece", "pieces_of", "read_piece"]

#: Bytes of a task's rows before compression: a larger file is read by several tasks.
_MOST_BYTES: Final = 64 * 2**20
#: zstd unpacks most changed bytes without an error.
_CHECKED: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class Piece(NamedTuple):
    """Row groups of one file."""

    file: str
    row_groups: tuple[int, ...]


def pieces_of(
    files: Iterable[str], columns: pa.Schema, wanted: pc.Expression | None = None
) -> Iterator[Piece]:
    """Yield the pieces of the files, in their order.

    ``columns``: of all files together; ``wanted`` may refer to any of them. Raises PipelineError naming the
    file that is broken.
    """
    for file in files:
        try:
            # Its type hints do not know Parquet's fragments.
            fragment: Any = _CHECKED.make_fragment(*arrow_file(path_of(file)))
            kept = fragment if wanted is None else fragment.subset(filter=wanted, schema=columns)
            groups = [(group.id, group.total_byte_size) for group in kept.row_groups]
        except (pa.ArrowException, OSError) as problem:
            raise PipelineError(f"{file}: {unreadable(problem) or f'broken: {problem}'}") from problem
        piece: list[int] = []
        size = 0
        for number, group_bytes in groups:
            if piece and size + group_bytes > _MOST_BYTES:
                yield Piece(file, tuple(piece))
                piece, size = [], 0
            piece.append(number)
            size += group_bytes
        if piece:
            yield Piece(file, tuple(piece))


def read_piece(
    piece: Piece, columns: pa.Schema, wanted: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece for which ``wanted`` is true, with all ``columns``.

    A column that the file does not have is null. Raises PipelineError naming a file that is broken.
    """
    try:
        name, store = arrow_file(path_of(piece.file))
        fragment = _CHECKED.make_fragment(name, store, row_groups=list(piece.row_groups))
        yield from fragment.to_batches(columns, filter=wanted, batch_readahead=1, fragment_readahead=1)
    except (pa.ArrowException, OSError) as problem:
        raise PipelineError(f"{piece.file}: {unreadable(problem) or f'broken: {problem}'}") from problem
