"""The bytes of AlterPartition responses are those that kio writes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import ListColumn
from ctrlchan.controller.handlers.isr_changes import AlterPartitionRequest, AlterPartitionResult
from ctrlchan.controller.server.apis.alter_partition import response_body
from ctrlchan.server.kio_messages import ClientMessages, KioError

IDS_SINCE = 2
INT32 = st.integers(-(2**31), 2**31 - 1)
#: Partition, error code, leader, leader epoch, ISR, recovery state, partition epoch.
ROW = st.tuples(
    INT32,
    st.sampled_from([0, 3, 41, 95, 107]),
    INT32,
    INT32,
    st.lists(INT32, max_size=3) | st.lists(INT32, min_size=126, max_size=129),
    st.integers(0, 1),
    INT32,
)


@pytest.mark.parametrize("version", range(4))
@given(topics=st.lists(st.lists(ROW, max_size=3), max_size=3))
def test_responses_of_all_versions(version: int, topics: list[list[tuple[Any, ...]]]) -> None:
    rows = [row for topic in topics for row in topic]
    columns = list(zip(*rows, strict=True)) or [()] * 7

    def column(place: int) -> Any:
        return np.array(columns[place], np.int32)

    none = np.zeros(len(rows), np.int32)
    keys = [bytes([number + 1]) * (16 if version >= IDS_SINCE else 140) for number in range(len(topics))]
    asked = AlterPartitionRequest(
        version=version,
        broker_id=1,
        broker_epoch=1,
        topics=keys,
        topic=np.array([at for at, topic in enumerate(topics) for _ in topic], np.int32),
        partition=column(0),
        leader_epoch=none,
        partition_epoch=none,
        recovery_state=none,
        isr=ListColumn.from_lists([[1]] * len(rows)),
    )
    result = AlterPartitionResult(
        0,
        column(1),
        column(2),
        column(3),
        column(6),
        column(5),
        ListColumn.from_lists([list(one) for one in columns[4]]),
    )
    messages = ClientMessages("alter_partition", version)
    parts = [
        messages.part(
            "TopicData",
            topic_id=UUID(bytes=key) if version >= IDS_SINCE else None,
            partitions=tuple(
                messages.part(
                    "PartitionData",
                    partition_index=partition,
                    error_code=KioError(error),
                    leader_id=leader,
                    leader_epoch=leader_epoch,
                    isr=tuple(isr),
                    leader_recovery_state=recovery_state,
                    partition_epoch=partition_epoch,
                )
                for partition, error, leader, leader_epoch, isr, recovery_state, partition_epoch in topic
            ),
            **({} if version >= IDS_SINCE else {"topic_name": key.decode()}),
        )
        for key, topic in zip(keys, topics, strict=True)
    ]
    expected = messages.response(error_code=KioError.none, topics=tuple(parts))
    assert response_body(asked, result) == expected
