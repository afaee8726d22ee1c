"""Topics: their ids and assignments, creation and deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.errors import InvalidStateError, MalformedError, NodeError, ResultCode
from ctrlchan.topic_names import ZERO_ID, id_from_text, why_invalid
from ctrlchan.zookeeper import _states, nodes, paths
from ctrlchan.zookeeper.bulk import write_operations
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import ANY_VERSION, Create, Delete, Operation, SetData
from ctrlchan.zookeeper.values import TopicsRead

__all__ = ["TopicNodes"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_MAX_INT32 = 2**31 - 1


class TopicNodes(GuardedNodes):
    """Reads, creates, changes and deletes topics."""

    def topic_names(self, changed: Callable[[str], object] | None = None) -> list[str]:
        """Return the names of all topics, in their order. ``changed(path)``: called once when they change."""
        if changed is None:
            return sorted(self.session.children(paths.TOPICS) or [])
        return sorted(self.session.watch_children(paths.TOPICS, changed) or [])

    def read_topics(self, names: Sequence[str], changed: Callable[[str], object] | None = None) -> TopicsRead:
        """Return topics with their partitions; topics that are gone are left out.

        ``changed(path)``: called once for each topic when its node changes.
        """
        malformed = {paths.topic(name): reason for name in names if (reason := why_invalid(name)) is not None}
        topics = [name for name in names if paths.topic(name) not in malformed]
        node_paths = [paths.topic(name) for name in topics]
        if changed is None:
            found = self.session.get_many(node_paths)
        else:
            found = self.session.watch_nodes(node_paths, changed)
        builder = _TopicsBuilder(malformed)
        for name, path, node in zip(topics, node_paths, found, strict=True):
            if node is not None:
                builder.add(name, path, node.data, node.version)
        return builder.read()

    def write_topic_assignment(
        self,
        name: str,
        topic_id: bytes | None,
        assignment: Mapping[int, tuple[Sequence[int], Sequence[int], Sequence[int]]],
        version: int = ANY_VERSION,
    ) -> int:
        """Replace a topic's node; return OK, NO_NODE or BAD_VERSION (``ResultCode``).

        ``assignment``: partition -> (replicas, adding, removing), all partitions of the topic. Raises
        ControllerMovedError. Source: ``setTopicAssignmentRaw``.
        """
        data = _encode(topic_id, assignment)
        try:
            self.write([SetData(paths.topic(name), data, version)])
        except NodeError as error:
            if error.code in (ResultCode.NO_NODE, ResultCode.BAD_VERSION):
                return error.code
            raise
        return int(ResultCode.OK)

    def write_topic_assignments(
        self,
        names: Sequence[bytes],
        topic_ids: UInt8 | Sequence[bytes | None],
        topic_row: Int32,
        partition: Int32,
        replicas: ListColumn,
        adding: ListColumn,
        removing: ListColumn,
    ) -> Int32:
        """Replace the nodes of many topics; return the result of each (``ResultCode``), int32[topics].

        ``topic_ids``: uint8[topics, 16], zeros for none, or 16 bytes each. Rows: all partitions of these
        topics, ascending by topic row. Raises ControllerMovedError.
        """
        bounds = np.searchsorted(topic_row, np.arange(len(names) + 1)).tolist()
        partition = np.ascontiguousarray(partition, np.int32)
        lists = (_parts(replicas), _parts(adding), _parts(removing))
        operations = []
        for row, name in enumerate(names):
            topic_id = topic_ids[row]
            text = b"" if topic_id is None else nodes.topic_id_text(bytes(topic_id))
            data = _states.encode_topic(text, partition, *lists, bounds[row], bounds[row + 1])
            operations.append(SetData(paths.topic(name.decode()), data))
        return write_operations(self, operations).error

    def create_topics(
        self,
        names: Sequence[str],
        topic_ids: Sequence[bytes | None],
        assignments: Sequence[Mapping[int, Sequence[int]]],
        configs: Sequence[Mapping[str, str]],
    ) -> list[int]:
        """Create topics, each with its configuration before it; return OK or NODE_EXISTS for each.

        The configuration of a topic that exists is left alone. Raises ControllerMovedError. Source:
        ``AdminZkClient.createTopicWithAssignment``.
        """
        existing = self.session.get_many([paths.topic(name) for name in names])
        codes = np.where([node is not None for node in existing], int(ResultCode.NODE_EXISTS), 0)
        new = np.flatnonzero(codes == 0).tolist()
        if not new:
            return [int(code) for code in codes]
        self.create_missing([paths.TOPICS, paths.TOPIC_CONFIGS])
        config_data = [nodes.encode_config(configs[i]) for i in new]
        config_paths = [paths.topic_config(names[i]) for i in new]
        self._set_or_create(config_paths, config_data)
        created = write_operations(
            self,
            [Create(paths.topic(names[i]), nodes.encode_topic(topic_ids[i], assignments[i])) for i in new],
        )
        codes[new] = created.error
        return [int(code) for code in codes]

    def create_topic(
        self,
        name: str,
        topic_id: bytes | None,
        assignment: Mapping[int, Sequence[int]],
        config: Mapping[str, str] | None = None,
    ) -> int:
        """Create one topic; see ``create_topics``."""
        return self.create_topics([name], [topic_id], [assignment], [config or {}])[0]

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics: their partitions, configurations, nodes, then their requests for deletion.

        Kafka deletes the configuration behind the topic's node. A controller that dies between the two leaves
        it for ever, because requests for unknown topics are only removed. Raises ControllerMovedError.
        Source: ``TopicDeletionManager.completeDeleteTopic``.
        """
        parents = [paths.partitions(name) for name in names]
        below = self.session.children_of_each(parents)
        partitions = [
            (name, number) for name, numbers in zip(names, below, strict=True) for number in numbers or ()
        ]
        for node_paths in (
            [paths.partition_state(*one) for one in partitions],
            [paths.partition(*one) for one in partitions],
            parents,
            [paths.topic_config(name) for name in names],
            [paths.topic(name) for name in names],
            [paths.deleted_topic(name) for name in names],
        ):
            self._delete(node_paths)

    def _delete(self, node_paths: Sequence[str]) -> None:
        """Delete nodes, with what is below them, as far as they are there."""
        written = write_operations(self, [Delete(path) for path in node_paths])
        for place in np.flatnonzero(written.error).tolist():
            path, code = node_paths[place], int(written.error[place])
            if code == ResultCode.NOT_EMPTY:
                # Nodes that Kafka does not make, or that were made meanwhile.
                self._delete([f"{path}/{one}" for one in self.session.children(path) or ()])
                self._delete([path])
            elif code != ResultCode.NO_NODE:
                raise NodeError(path, code)

    def _set_or_create(self, node_paths: Sequence[str], data: Sequence[bytes]) -> None:
        creations: list[Operation] = [Create(*one) for one in zip(node_paths, data, strict=True)]
        error = write_operations(self, creations).error
        there = np.flatnonzero(error == ResultCode.NODE_EXISTS).tolist()
        error[there] = write_operations(self, [SetData(node_paths[i], data[i]) for i in there]).error
        for place in np.flatnonzero(error).tolist():
            raise NodeError(node_paths[place], int(error[place]))


class _TopicsBuilder:
    """Collects the nodes of topics."""

    def __init__(self, malformed: dict[str, str]) -> None:
        self._malformed = malformed
        self._names: list[bytes] = []
        self._paths: list[str] = []
        self._ids: list[bytes] = []
        self._versions: list[int] = []
        self._columns = _states.AssignmentColumns()
        #: Row in the order of reading -> (adding, removing) of partitions that are being reassigned.
        self._reassigned: dict[int, tuple[list[int], list[int]]] = {}

    def add(self, name: str, path: str, data: bytes, version: int) -> None:
        row = len(self._names)
        try:
            text = self._columns.decode(data, row)
            topic_id = self._add_unusual(data, row) if text is None else _topic_id(text)
        except MalformedError as error:
            self._malformed[path] = str(error)
            # Rows of a topic without a name are dropped at the end.
            name, topic_id = "", ZERO_ID
        self._names.append(name.encode())
        self._paths.append(path)
        self._ids.append(topic_id)
        self._versions.append(version)

    def _add_unusual(self, data: bytes, row: int) -> bytes:
        topic = nodes.parse_topic(data)
        reasons = [f"partition {one.key}: {reason}" for one in topic.assignments for reason in one.reasons]
        for one in topic.assignments:
            if not one.reasons:
                reasons += _beyond_int32(one)
        if reasons:
            raise MalformedError(*reasons)
        for one in topic.assignments:
            if one.adding or one.removing:
                self._reassigned[len(self._columns)] = (one.adding, one.removing)
            self._columns.put(row, one.partition, one.replicas)
        return topic.topic_id or ZERO_ID

    def read(self) -> TopicsRead:
        topic_row, partition, starts, lengths, values = self._columns.columns()
        order = np.lexsort((partition, topic_row))
        topic_row, partition = topic_row[order], partition[order]
        twice = (topic_row[1:] == topic_row[:-1]) & (partition[1:] == partition[:-1])
        for place in np.flatnonzero(twice).tolist():
            row = int(topic_row[place])
            self._malformed[self._paths[row]] = f"partition {partition[place]} is there twice"
            self._names[row] = b""
        adding, removing = self._reassignments(len(order), order)
        kept = np.array([bool(name) for name in self._names], dtype=bool)
        new_row = np.cumsum(kept, dtype=np.int32) - 1
        rows = kept[topic_row] if len(topic_row) else np.empty(0, bool)
        return TopicsRead(
            names=[name for name in self._names if name],
            ids=np.frombuffer(b"".join(self._ids), np.uint8).reshape(-1, len(ZERO_ID))[kept],
            versions=np.array(self._versions, np.int32)[kept],
            topic_row=new_row[topic_row[rows]] if len(rows) else topic_row,
            partition=partition[rows],
            replicas=ListColumn(starts[order][rows], lengths[order][rows], values),
            adding=ListColumn(adding.starts[rows], adding.lengths[rows], adding.values),
            removing=ListColumn(removing.starts[rows], removing.lengths[rows], removing.values),
            malformed=self._malformed,
        )

    def _reassignments(self, count: int, order: Int64) -> tuple[ListColumn, ListColumn]:
        """Return the adding and removing replicas in the order of the sorted rows."""
        columns = []
        for side in (0, 1):
            starts, lengths = np.zeros(count, np.int32), np.zeros(count, np.int32)
            values: list[int] = []
            for row, lists in self._reassigned.items():
                starts[row], lengths[row] = len(values), len(lists[side])
                values += lists[side]
            columns.append(ListColumn(starts[order], lengths[order], np.array(values, np.int32)))
        return columns[0], columns[1]


def _parts(lists: ListColumn) -> tuple[Int32, Int32, Int32]:
    """Return starts, lengths and values, each in one piece."""
    starts, lengths, values = (
        np.ascontiguousarray(one, np.int32) for one in (lists.starts, lists.lengths, lists.values)
    )
    return starts, lengths, values


def _topic_id(text: bytes) -> bytes:
    if not text:
        return ZERO_ID
    try:
        return id_from_text(text.decode())
    except InvalidStateError as error:
        raise MalformedError(str(error)) from None


def _beyond_int32(assignment: nodes.Assignment) -> list[str]:
    reasons = []
    if assignment.partition > _MAX_INT32:
        reasons.append(f"partition {assignment.partition} is not in 0 .. {_MAX_INT32}")
    for brokers in (assignment.replicas, assignment.adding, assignment.removing):
        reasons += [
            f"partition {assignment.partition} has {one}, which is no broker id"
            for one in brokers
            if not 0 <= one <= _MAX_INT32
        ]
    return reasons


def _encode(
    topic_id: bytes | None, assignment: Mapping[int, tuple[Sequence[int], Sequence[int], Sequence[int]]]
) -> bytes:
    replicas = {partition: lists[0] for partition, lists in assignment.items()}
    adding = {partition: lists[1] for partition, lists in assignment.items() if lists[1]}
    removing = {partition: lists[2] for partition, lists in assignment.items() if lists[2]}
    return nodes.encode_topic(topic_id, replicas, adding, removing)
