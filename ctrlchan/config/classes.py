"""Makes objects of the classes of Python that settings name."""

from __future__ import annotations

import importlib
from typing import TypeVar

from ctrlchan.errors import ConfigError

__all__ = ["instance_of"]

_T = TypeVar("_T")


def instance_of(key: str, class_name: str, base: type[_T], hint: str = "") -> _T:
    """Return an instance of the class ``PACKAGE.MODULE.CLASS``, which must be a subclass of ``base``.

    ``key``: of the setting. ``hint``: what else the setting may have. Raises ConfigError.
    """
    module_name, _, name = class_name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key}: {class_name!r} cannot be imported ({error}); {hint}classes are PACKAGE.MODULE.CLASS"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError(f"{key}: {class_name!r} is no subclass of {base.__module__}.{base.__qualname__}")
    return kind()
