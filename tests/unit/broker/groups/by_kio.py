"""Messages of kio, which those of the handlers are compared with."""

from __future__ import annotations

import io
import sys
from typing import Any

from kio.serial import entity_writer

from ctrlchan.server.kio_messages import only_known_fields


def part(schema: Any, kind: str, /, **fields: Any) -> Any:
    """Return a part of a message with those of ``fields`` that this version has."""
    entity = getattr(sys.modules[schema.__module__], kind)
    return entity(**only_known_fields(entity, fields))


def encoded(entity: Any) -> bytes:
    """Return the bytes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
