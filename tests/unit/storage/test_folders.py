"""Folders are whole or absent, whoever dies or comes at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ctrlchan.storage import AnyPath, contents_of, names_in, occupied, replace, whole_folder
from tests.storage.s3 import S3Server

MARK = "about.json"


def write(
    path: AnyPath, text: str, *, overwrite: bool = False, meanwhile: Callable[[], None] | None = None
) -> None:
    with whole_folder(path, MARK, overwrite=overwrite) as folder:
        replace(folder / "data", text.encode())
        replace(folder / MARK, json.dumps({"text": text}).encode())
        if meanwhile is not None:
            meanwhile()


def fail(path: AnyPath, *, overwrite: bool = False) -> None:
    with whole_folder(path, MARK, overwrite=overwrite) as folder:
        replace(folder / "data", b"half")
        raise TypeError


def read(path: AnyPath) -> str:
    about = json.loads((path / MARK).read_bytes())
    content = (contents_of(path, about) / "data").read_bytes().decode()
    assert about["text"] == content
    return content


def test_a_folder_appears_at_the_end_and_is_replaced(root: AnyPath) -> None:
    path = root / "out"
    with whole_folder(path, MARK, overwrite=False) as folder:
        replace(folder / "data", b"half")
        assert not (path / MARK).exists()
        replace(folder / MARK, b'{"text": "half"}')
    assert read(path) == "half"
    assert occupied(path, MARK, overwrite=False) == "already there (--overwrite replaces it)"
    assert occupied(path, MARK, overwrite=True) is None
    write(path, "new", overwrite=True)
    assert read(path) == "new"
    # Nothing is left of the old one.
    assert len(names_in(path)) == 2


def test_a_writer_that_fails_leaves_nothing(root: AnyPath) -> None:
    path = root / "out"
    with pytest.raises(TypeError):
        fail(path)
    assert not path.exists()
    write(path, "whole")
    with pytest.raises(TypeError):
        fail(path, overwrite=True)
    assert read(path) == "whole"


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    link.symlink_to("folder")
    write(link, "new")
    assert read(folder) == "new"
    write(link, "newer", overwrite=True)
    assert read(folder) == "newer"
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "link"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="loop"):
        write(loop, "new")


def test_of_two_writers_one_succeeds(root: AnyPath) -> None:
    path = root / "out"
    with pytest.raises(FileExistsError):
        write(path, "slow", meanwhile=lambda: write(path, "fast"))
    assert read(path) == "fast"
    assert len(names_in(path)) == 2


def test_other_folders_are_not_replaced(root: AnyPath) -> None:
    path = root / "home"
    if isinstance(path, Path):
        path.mkdir()
    replace(path / "letter", b"x")
    for overwrite in (False, True):
        assert occupied(path, MARK, overwrite=overwrite) is not None


def test_what_a_killed_writer_left_is_no_dataset_and_in_nobodys_way(
    bucket: AnyPath, caplog: pytest.LogCaptureFixture
) -> None:
    path = bucket / "out"
    write(path, "whole")
    write(path, "new", overwrite=True)
    path = bucket / "other"
    replace(path / "data-0123456789ab" / "data", b"half")
    assert occupied(path, MARK, overwrite=False) is None
    assert not (path / MARK).exists()
    write(path, "whole")
    assert read(path) == "whole"
    [message] = [one.message for one in caplog.records if one.name == "ctrlchan.storage"]
    assert message.startswith(f"{path}: data-0123456789ab: left by a writer that died")


def test_a_lost_answer_to_the_put_of_the_mark(s3: S3Server, bucket: AnyPath) -> None:
    answers = iter(["lost", "busy"])
    s3.fault = lambda request: next(answers, None) if request.conditional else None
    write(bucket / "out", "whole")
    assert read(bucket / "out") == "whole"


def test_a_folder_copied_from_this_machine_is_read_and_replaced(bucket: AnyPath) -> None:
    path = bucket / "out"
    replace(path / "data", b"copied")
    replace(path / MARK, b'{"text": "copied"}')
    assert read(path) == "copied"
    write(path, "new", overwrite=True)
    assert read(path) == "new"
    assert not (path / "data").exists()


def test_a_command_names_what_a_writer_has_left(bucket: AnyPath) -> None:
    path = bucket / "live"
    replace(path / "data-0123456789ab" / "partitions.parquet", b"")
    words = ("snapshot", "generate", str(path), "--topics", "1", "--partitions", "1", "--brokers", "3")
    command = [sys.executable, "-m", "ctrlchan", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f"{path}: data-0123456789ab: left by a writer that died" in done.stderr
