"""Topic names and topic ids: Kafka's rules, and the text form of an id.

Names that Kafka refuses (``org.apache.kafka.common.internals.Topic``) are refused here too: a broker makes a
folder for each topic, so no real cluster has such a name. Names in decoded requests are not checked, because
a broker does not check them either.
"""

from __future__ import annotations

import base64
import binascii
import uuid

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import StringColumn
from ctrlchan.errors import InvalidStateError

__all__ = [
    "MAX_NAME_LENGTH",
    "ZERO_ID",
    "check_name",
    "id_from_text",
    "id_to_text",
    "invalid_names",
    "new_id",
    "why_invalid",
]

#: Bytes, which are also characters: every legal character is ASCII.
MAX_NAME_LENGTH = 249
#: ``Uuid.ZERO_UUID``: the topic id is not known.
ZERO_ID = bytes(16)

_LEGAL_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
_LEGAL = np.zeros(256, dtype=bool)
_LEGAL[list(_LEGAL_BYTES)] = True


def why_invalid(name: str | bytes) -> str | None:
    """Return the reason why Kafka refuses this topic name, or None when it is allowed."""
    raw = name.encode(errors="surrogateescape") if isinstance(name, str) else name
    if not raw:
        return "the topic name is empty"
    if raw in (b".", b".."):
        return "the topic name is '.' or '..'"
    if len(raw) > MAX_NAME_LENGTH:
        return f"the topic name has {len(raw)} bytes, more than {MAX_NAME_LENGTH}"
    if raw.translate(None, _LEGAL_BYTES):
        return "the topic name has a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def check_name(name: str | bytes) -> bytes:
    """Return the name's bytes. Raises InvalidStateError when Kafka refuses the name."""
    reason = why_invalid(name)
    if reason is not None:
        raise InvalidStateError(f"topic {name!r}: {reason}")
    return name.encode() if isinstance(name, str) else name


def invalid_names(names: StringColumn) -> npt.NDArray[np.int64]:
    """Return the rows (int64, ascending) of the names that ``why_invalid`` refuses."""
    lengths = names.lengths
    starts = names.starts.astype(np.int64)
    wrong = (lengths <= 0) | (lengths > MAX_NAME_LENGTH)
    # Count the illegal bytes before each position once, then subtract at both ends of each name.
    illegal_before = np.concatenate(([0], np.cumsum(~_LEGAL[names.data])))
    wrong |= illegal_before[starts + np.maximum(lengths, 0)] != illegal_before[starts]
    for row in np.flatnonzero((lengths == 1) | (lengths == 2)).tolist():
        wrong[row] |= names[row] in (b".", b"..")
    return np.flatnonzero(wrong)


def id_to_text(topic_id: bytes) -> str:
    """Return the 16 bytes as Kafka's ``Uuid.toString`` does: base64url without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def id_from_text(text: str) -> bytes:
    """Return the 16 bytes of a ``Uuid.toString`` text. Raises InvalidStateError for any other text."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        topic_id = b""
    # The decoder skips characters outside its alphabet.
    if len(topic_id) != len(ZERO_ID) or id_to_text(topic_id) != text:
        raise InvalidStateError(f"{text!r} is not a topic id (22 base64url characters)")
    return topic_id


def new_id() -> bytes:
    """Return a new random topic id. Its text begins with no dash, so that tools take it for no option."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not id_to_text(topic_id).startswith("-"):
            return topic_id
