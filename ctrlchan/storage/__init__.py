"""Files and folders: on this machine, in HDFS, or in an object store.

In: paths as text. Out: ``pathlib.Path`` for this machine, ``UrlPath`` for all else, and the few writes that
the rest of ctrlchan needs: a file that is whole or absent (``replace``), a file that only one writer can make
(``write_new``), a folder that is whole or absent (``whole_folder``). This room knows nothing of what is in
them.

What each store promises, and what is used of it:

=====================  ===================================================================================
this machine           ``rename`` of a file or a folder is atomic; ``link`` fails where the name is taken
HDFS                   ``rename`` of a file is atomic, with and without overwriting
S3, Google, Azure      a put is atomic; a conditional put (``If-None-Match: *``) fails where the name is
taken;
                       who reads after a put sees it. There is no rename
=====================  ===================================================================================

No folder of a store is renamed, and no listing decides what belongs to a dataset.
"""

from __future__ import annotations

from ctrlchan.storage.files import (
    files_in,
    names_in,
    remove_empty,
    remove_tree,
    replace,
    text_file,
    write_new,
)
from ctrlchan.storage.folders import MARK_FOLDER, contents_of, occupied, whole_folder
from ctrlchan.storage.paths import AnyPath, PathLike, UrlPath, is_url, local_path, path_of

__all__ = [
    "MARK_FOLDER",
    "AnyPath",
    "PathLike",
    "UrlPath",
    "contents_of",
    "files_in",
    "is_url",
    "local_path",
    "names_in",
    "occupied",
    "path_of",
    "remove_empty",
    "remove_tree",
    "replace",
    "text_file",
    "whole_folder",
    "write_new",
]
