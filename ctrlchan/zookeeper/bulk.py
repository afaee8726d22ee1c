"""Many nodes in few requests: states of partitions as columns, and writes that fail row by row.

A write of many rows is a multi for every thousand of them, each with the guard of the controller epoch, all
under way at once. ZooKeeper applies a multi as a whole or not at all and names the first operation that
failed: that row has its error, the rows before it are sent again together, those behind it in two halves. So
bad rows do not stop others, and cost a few requests each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import _states, nodes
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import (
    Create,
    Delete,
    MultiRead,
    MultiWrite,
    Node,
    Operation,
    SetData,
    encode_multi,
)
from ctrlchan.zookeeper.session import Answer, ConnectionLostError, ZooKeeperSession
from ctrlchan.zookeeper.values import Written

__all__ = [
    "OperationRows",
    "Rows",
    "StateRows",
    "delete_nodes",
    "read_states",
    "write_operations",
    "write_rows",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: Rows of one request, and requests under way at once.
_ROWS: Final = 1_000
_IN_FLIGHT: Final = 8
_MAX_INT32: Final = 2**31 - 1
#: More than the bytes of a request beside its operations.
_MULTI_BYTES: Final = 64


# -- reading


def read_states(
    session: ZooKeeperSession, paths: _states.PartitionPaths
) -> tuple[_states.StateColumns, dict[int, str]]:
    """Return (columns of the state nodes, row -> reason of malformed ones)."""
    columns, malformed = _states.StateColumns(len(paths)), dict[int, str]()
    under_way: deque[tuple[int, int, MultiRead, Answer]] = deque()
    begin, count = 0, len(paths)
    while session.has_multi_read and (begin < count or under_way):
        while begin < count and len(under_way) < _IN_FLIGHT:
            body, end = _states.encode_reads(paths, begin, _ROWS, session.settings.max_request_bytes)
            request = MultiRead(body)
            under_way.append((begin, end, request, session.submit(request, paths[begin].decode())))
            begin = end
        first, end, request, answer = under_way.popleft()
        try:
            data, offset = answer.get()
        except ConnectionLostError:
            under_way.appendleft((first, end, request, session.submit(request, paths[first].decode())))
        except NodeError as error:
            if error.code != ResultCode.UNIMPLEMENTED:
                raise
            session.has_multi_read = False
        else:
            for row, found in columns.decode(data, offset, first, end - first):
                _put_unusual(columns, malformed, row, found)
    if not session.has_multi_read:
        return _read_states_singly(session, paths)
    return columns, malformed


def _read_states_singly(
    session: ZooKeeperSession, paths: _states.PartitionPaths
) -> tuple[_states.StateColumns, dict[int, str]]:
    columns, malformed = _states.StateColumns(len(paths)), dict[int, str]()
    found = session.read_all([paths[row] for row in range(len(paths))])
    for row, one in enumerate(found):
        if isinstance(one, Node):
            columns.version[row] = one.version
            _put_unusual(columns, malformed, row, one.data)
        elif one != ResultCode.NO_NODE:
            _put_unusual(columns, malformed, row, one)
    return columns, malformed


def _put_unusual(
    columns: _states.StateColumns, malformed: dict[int, str], row: int, found: bytes | int
) -> None:
    """Fill a row from a node that has not Kafka's exact form, or add the reason why it cannot be read."""
    if isinstance(found, int):
        malformed[row] = f"cannot be read ({ResultCode.name_of(found)})"
        return
    try:
        state = nodes.parse_partition_state(found)
        _check_state(state)
    except MalformedError as error:
        malformed[row] = str(error)
    else:
        columns.put(
            row,
            state.leader,
            state.leader_epoch,
            state.controller_epoch,
            state.recovery_state,
            state.isr,
        )


def _check_state(state: nodes.PartitionState) -> None:
    """Raise MalformedError for values that no column of a cluster's state holds."""
    limits = {
        "leader": (state.leader, -2, _MAX_INT32),
        "leader_epoch": (state.leader_epoch, -1, _MAX_INT32),
        "controller_epoch": (state.controller_epoch, -1, _MAX_INT32),
        "leader_recovery_state": (state.recovery_state, 0, 1),
    }
    reasons = [
        f"{name} {value} is not in {lowest} .. {highest}"
        for name, (value, lowest, highest) in limits.items()
        if not lowest <= value <= highest
    ]
    reasons += [f"isr has {one}, which is no broker id" for one in state.isr if not 0 <= one <= _MAX_INT32]
    if reasons:
        raise MalformedError(*reasons)


# -- writing


class Rows(Protocol):
    """One operation for each row, as bytes for the multi and as a value for reading it back."""

    def __len__(self) -> int: ...

    def encode(self, guard: bytes, rows: Int64, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
        """Return (body of a multi of the guard and the first of these rows, how many of them are in it)."""

    def operation(self, row: int) -> Operation:
        """Return the operation of this row."""


class OperationRows:
    """Operations as rows."""

    def __init__(self, session: ZooKeeperSession, operations: Sequence[Operation]) -> None:
        self._session = session
        self._operations = operations

    def __len__(self) -> int:
        return len(self._operations)

    def encode(self, guard: bytes, rows: Int64, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
        parts, size = [guard], len(guard) + _MULTI_BYTES
        for row in rows[:max_rows].tolist():
            part = self._session.encode(self._operations[row])
            size += len(part)
            if size > max_bytes and len(parts) > 1:
                break
            parts.append(part)
        return encode_multi(parts), len(parts) - 1

    def operation(self, row: int) -> Operation:
        return self._operations[row]


class StateRows:
    """Writes of state nodes as rows. ``kind``: of ``_states.encode_writes``."""

    def __init__(
        self,
        session: ZooKeeperSession,
        kind: int,
        paths: _states.PartitionPaths,
        values: _states.StateValues | None,
        versions: Int32,
        acl: bytes,
    ) -> None:
        self._chroot = session.chroot
        self._kind, self._paths, self._values = kind, paths, values
        self._versions, self._acl = versions, acl

    def __len__(self) -> int:
        return len(self._paths)

    def encode(self, guard: bytes, rows: Int64, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
        body, end = _states.encode_writes(
            self._kind,
            guard,
            self._paths,
            rows,
            0,
            self._values,
            self._versions,
            self._acl,
            max_rows,
            max_bytes,
        )
        return body, end

    def operation(self, row: int) -> Operation:
        path = self._paths[row][len(self._chroot) :].decode()
        if self._values is None:
            return Create(path)
        data = self._values.encoded(row)
        if self._kind == _states.CREATE_STATES:
            return Create(path, data)
        return SetData(path, data, int(self._versions[row]))


class _Batch(NamedTuple):
    """A multi that was sent. ``sent_zxid``: the last transaction that was known then."""

    rows: Int64
    sent_zxid: int
    answer: Answer


def write_rows(guarded: GuardedNodes, rows: Rows, selected: Int64 | None = None) -> Written:
    """Write all rows, or those selected; return the results of all. Rows that were not selected have error 0.

    The version of a row that was not written by SetData is 0, of one that failed -1. Raises
    ControllerMovedError; rows that were under way then may have been written before another controller was
    elected.
    """
    session = guarded.session
    version, error = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
    guard, limit = session.encode(guarded.guard()), session.settings.max_request_bytes
    waiting: deque[Int64] = deque([np.arange(len(rows)) if selected is None else selected])
    under_way: deque[_Batch] = deque()
    while waiting or under_way:
        while waiting and len(under_way) < _IN_FLIGHT:
            some = waiting.popleft()
            if not len(some):
                continue
            body, count = rows.encode(guard, some, _ROWS, limit)
            if count < len(some):
                waiting.appendleft(some[count:])
            zxid = session.last_zxid
            answer = session.submit(MultiWrite(body), rows.operation(int(some[0])).path)
            under_way.append(_Batch(some[:count], zxid, answer))
        if not under_way:
            continue
        batch = under_way.popleft()
        try:
            data, offset = batch.answer.get()
        except ConnectionLostError:
            operations = (rows.operation(row) for row in batch.rows.tolist())
            if session.was_applied(operations, batch.sent_zxid):
                version[batch.rows] = _versions_after(rows, batch.rows)
            else:
                waiting.appendleft(batch.rows)
            continue
        versions = np.empty(len(batch.rows) + 1, np.int32)
        place, code = _states.decode_writes(data, offset, len(versions), versions)
        if place < 0:
            version[batch.rows] = versions[1:]
        elif place == 0:
            raise guarded.moved()
        else:
            bad = place - 1
            version[batch.rows[bad]], error[batch.rows[bad]] = -1, code
            behind = batch.rows[place:]
            half = len(behind) // 2
            waiting.extendleft((behind[half:], behind[:half], batch.rows[:bad]))
    return Written(version, error)


def write_operations(guarded: GuardedNodes, operations: Sequence[Operation]) -> Written:
    """Write operations that may fail each for itself. Raises ControllerMovedError."""
    return write_rows(guarded, OperationRows(guarded.session, operations))


def delete_nodes(guarded: GuardedNodes, node_paths: Iterable[str]) -> None:
    """Delete nodes without children, as far as they are there. Raises ControllerMovedError, NodeError."""
    operations = [Delete(path) for path in dict.fromkeys(node_paths)]
    error = write_operations(guarded, operations).error
    for row in np.flatnonzero((error != ResultCode.OK) & (error != ResultCode.NO_NODE)).tolist():
        raise NodeError(operations[row].path, int(error[row]))


def _versions_after(rows: Rows, selected: Int64) -> Any:
    return [max(0, getattr(rows.operation(row), "version", -1) + 1) for row in selected.tolist()]
