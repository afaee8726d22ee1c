"""Files are whole or absent, and of several writers one makes a new file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ctrlchan.storage import AnyPath, files_in, names_in, path_of, remove_tree, replace, text_file, write_new
from tests.storage.s3 import S3Server


def test_a_file_is_replaced_and_nothing_else_is_there(root: AnyPath) -> None:
    replace(root / "a", b"old")
    replace(root / "a", b"new")
    assert (root / "a").read_bytes() == b"new"
    assert names_in(root) == ["a"]
    assert (root / "a").is_file()
    assert not (root / "a").is_dir()
    assert root.is_dir()
    assert not (root / "b").exists()


def test_one_of_many_writers_makes_a_new_file(root: AnyPath) -> None:
    for number in range(5):
        path = root / f"claim-{number}"
        with ThreadPoolExecutor(6) as pool:
            made = list(pool.map(_made, [path] * 6, range(6)))
        [winner] = [mine for mine, was_made in enumerate(made) if was_made]
        assert path.read_bytes() == b"%d" % winner


def _made(path: AnyPath, mine: int) -> bool:
    try:
        write_new(path, b"%d" % mine)
    except FileExistsError:
        return False
    return True


def test_folders_are_listed_without_hidden_files(root: AnyPath) -> None:
    assert names_in(root / "none") == []
    for name in ("b.parquet", "a.parquet", "_hidden.parquet", ".x.parquet", "c.txt"):
        replace(root / name, b"x")
    write = root / "inner.parquet"
    if isinstance(write, Path):
        write.mkdir()
    replace(write / "d", b"x")
    assert [one.name for one in files_in(root, ".parquet")] == ["a.parquet", "b.parquet"]
    assert names_in(root) == [
        ".x.parquet",
        "_hidden.parquet",
        "a.parquet",
        "b.parquet",
        "c.txt",
        "inner.parquet",
    ]
    remove_tree(write)
    assert not write.exists()
    remove_tree(write)


def test_a_file_can_be_removed_twice(root: AnyPath) -> None:
    replace(root / "a", b"x")
    (root / "a").unlink()
    (root / "a").unlink(missing_ok=True)
    assert not (root / "a").exists()
    with pytest.raises(FileNotFoundError):
        (root / "a").read_bytes()


def test_a_text_file_appears_at_the_end(root: AnyPath) -> None:
    root = root / "new" / "folder"
    with text_file(root / "log") as file:
        file.write("line\n")
        assert not (root / "log").exists()
    assert (root / "log").read_bytes() == b"line\n"
    with suppress(ZeroDivisionError), text_file(root / "log") as file:
        file.write(f"half {1 // 0}")
    assert (root / "log").read_bytes() == b"line\n"
    assert names_in(root) == ["log"]


# -- an object store that fails


def test_a_busy_store_is_asked_again(s3: S3Server, bucket: AnyPath) -> None:
    answers = iter(["busy", "busy"])
    s3.fault = lambda _: next(answers, None)
    replace(bucket / "a", b"x")
    assert (bucket / "a").read_bytes() == b"x"


def test_a_lost_answer_to_a_conditional_put_is_a_success(s3: S3Server, bucket: AnyPath) -> None:
    """The put was done; when it is repeated, the writer's own file is in its way."""
    answers = iter(["lost"])
    s3.fault = lambda request: next(answers, None) if request.conditional else None
    write_new(bucket / "a", b"mine")
    assert (bucket / "a").read_bytes() == b"mine"
    assert sum(one.conditional for one in s3.requests) >= 2
    with pytest.raises(FileExistsError):
        write_new(bucket / "a", b"theirs")


def test_errors_of_a_store_are_os_errors_with_the_url(s3: S3Server) -> None:
    with pytest.raises(OSError, match="s3://nowhere/x"):
        replace(path_of("s3://nowhere/x"), b"x")
