"""A process that can open no further file."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["few_descriptors", "no_descriptors"]


@contextmanager
def few_descriptors(left: int) -> Iterator[int]:
    """Let this process open ``left`` more files at most; yields its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/", os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + left, hard))
    try:
        yield spare + left
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let every ``open`` of this process fail with EMFILE."""
    with few_descriptors(0):
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            os.open("/", os.O_RDONLY)
        yield
