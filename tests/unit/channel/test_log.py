"""The channel's log lines: Kafka's wording, formatted only if written, and limited in number."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlResponse,
    StringColumn,
    Topics,
)
from ctrlchan.channel.observability import log_lines
from ctrlchan.channel.observability.log_lines import response_line
from ctrlchan.channel.outcome import Outcome, OutcomeKind, RequestResult, Sent
from ctrlchan.channel.queues import dispatcher
from ctrlchan.channel.wire.records import Report
from ctrlchan.state_change_log import TRACE
from tests.fault.channels import channel_to, peers
from tests.fault.peer import answer, hang_up
from tests.fault.requests import update

LOGGER = "state.change.logger"


def outcome_of(response: ControlResponse) -> Outcome:
    report = Report(1, 0, 0, 1, 1, 1, 42, 1, 1, 1, 0, 0, b"")
    return Outcome(Sent(1, update(), None, 0), RequestResult(OutcomeKind.ACKNOWLEDGED, 0, response), report)


def response(api_key: int, version: int, errors: list[tuple[bytes, list[int]]]) -> ControlResponse:
    """``errors``: of partitions 0, 1, ... of each topic."""
    counts = [len(codes) for _, codes in errors]
    return ControlResponse(
        api_key=api_key,
        version=version,
        error_code=0,
        topics=Topics(
            StringColumn.from_strings([name for name, _ in errors]),
            np.array([[number] * 16 for number in range(len(errors))], dtype=np.uint8).reshape(-1, 16),
        ),
        topic_starts=np.cumsum([0, *counts], dtype=np.int64),
        partition=np.array([number for count in counts for number in range(count)], dtype=np.int32),
        partition_error=np.array([code for _, codes in errors for code in codes], dtype=np.int32),
    )


END = " with correlation id 42 sent to broker h:1 (id: 1 rack: null)"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            ControlResponse(api_key=UPDATE_METADATA, version=8, error_code=11),
            "Received response UpdateMetadataResponseData(errorCode=11) for request UPDATE_METADATA",
        ),
        (
            response(LEADER_AND_ISR, 4, [(b"a", [0, 0]), (b"b", [56, 0])]),
            "Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=["
            "LeaderAndIsrPartitionError(topicName='b', partitionIndex=0, errorCode=56)], topics=[])"
            " for request LEADER_AND_ISR",
        ),
        (
            response(LEADER_AND_ISR, 7, [(b"", [0]), (b"", [0, 103])]),
            "Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=["
            "LeaderAndIsrTopicError(topicId=AQEBAQEBAQEBAQEBAQEBAQ, partitionErrors=["
            "LeaderAndIsrPartitionError(topicName='', partitionIndex=1, errorCode=103)])])"
            " for request LEADER_AND_ISR",
        ),
        (
            response(STOP_REPLICA, 4, [(b"a", [3])]),
            "Received response StopReplicaResponseData(errorCode=0, partitionErrors=["
            "StopReplicaPartitionError(topicName='a', partitionIndex=0, errorCode=3)])"
            " for request STOP_REPLICA",
        ),
    ],
)
def test_a_response_is_logged_in_kafkas_words(given: ControlResponse, line: str) -> None:
    assert response_line(outcome_of(given), given, {1: "h:1 (id: 1 rack: null)"}) == line + END


def test_a_line_never_names_all_partitions_of_a_large_response() -> None:
    given = response(STOP_REPLICA, 4, [(b"a", [3] * 5000)])
    line = response_line(outcome_of(given), given, {})
    assert len(line) < 3000
    assert ", and 4980 more" in line
    assert line.endswith("sent to broker (id: 1 rack: null)")


def test_each_response_is_traced_once_by_the_epoch_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel, caplog.at_level(TRACE, LOGGER):
        peer.script += [answer(31)]
        channel.wait([channel.send_request(1, update(number, epoch=8)) for number in range(2)], 10)
        channel.wait([channel.send_request(99, update())], 10)
    port = peer.broker.endpoints[0].port
    lines = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == LOGGER]
    assert lines == [
        (
            TRACE,
            f"[Controller id=0 epoch=8] Received response UpdateMetadataResponseData(errorCode={code}) "
            f"for request UPDATE_METADATA with correlation id {number} sent to broker 127.0.0.1:{port} "
            "(id: 1 rack: null)",
        )
        for number, code in enumerate((31, 0))
    ]


def test_a_log_line_is_not_formatted_if_it_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def formatted(*_: object) -> str:
        raise AssertionError("a line was made")

    for module in (dispatcher, log_lines):
        monkeypatch.setattr(module, "response_line", formatted)
        monkeypatch.setattr(module, "received_line", formatted)
    monkeypatch.setattr("ctrlchan.state_change_log.StateChangeLogger.trace", formatted)
    monkeypatch.setattr("ctrlchan.channel.request.ControlRequest.__repr__", formatted)
    assert not logging.getLogger(LOGGER).isEnabledFor(TRACE)
    assert not logging.getLogger("ctrlchan.channel").isEnabledFor(logging.DEBUG)
    with peers(1) as [peer], channel_to([peer]) as channel:
        called: list[Outcome] = []
        sent = [channel.send_request(1, update(number), called.append) for number in range(20)]
        assert {outcome.kind for outcome in channel.wait(sent, 10)} == {OutcomeKind.ACKNOWLEDGED}
        assert len(called) == 20


def test_repeated_failures_of_a_broker_are_not_logged_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with peers(1) as [peer], channel_to([peer], merge_update_metadata=False) as channel:
        # Every request fails once, so each failure is a first attempt.
        for _ in range(30):
            peer.script += [hang_up, answer()]
        channel.wait([channel.send_request(1, update(number)) for number in range(30)], 30)
        for _ in range(30):
            channel.send_request(99, update())
    lines = [
        record.getMessage() for record in caplog.records if "fails to send request" in record.getMessage()
    ]
    assert 1 <= len(lines) < 10
    assert all("rows=1" in line and len(line) < 400 for line in lines)
    assert sum("since it is offline" in record.getMessage() for record in caplog.records) < 10
