"""The task of ``ctrlchan pipeline check`` on folders and stores."""

from __future__ import annotations

import ctrlchan
from ctrlchan.pipeline.spark.executor_check import PROBE, examine
from ctrlchan.storage import AnyPath, names_in, path_of, replace
from tests.storage.s3 import S3Server


def problems_with(folder: AnyPath) -> list[str]:
    found: list[str] = examine(ctrlchan.__version__, [str(folder)], [], 0)["problems"]
    return found


def test_the_drivers_folder(root: AnyPath) -> None:
    replace(root / PROBE, b"")
    assert problems_with(root) == []
    assert names_in(root) == [PROBE]


def test_another_bucket_than_the_drivers(s3: S3Server) -> None:
    (problem,) = problems_with(path_of("s3://absent/folder"))
    assert "s3://absent/folder" in problem
    assert problem.endswith("give the executors the address and the credentials that the driver has")
