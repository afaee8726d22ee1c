"""What is answered in another way: a pattern of the label and of all that differs, and the reason."""

from __future__ import annotations

from typing import Final

__all__ = ["EXCEPTIONS"]

_TEXT: Final = r"\.(Responses|Results)\[\d\]\.ErrorMessage: Kafka None, ours 'a text'"

EXCEPTIONS: Final[dict[str, str]] = {
    rf"(DeleteTopics v6|CreatePartitions v\d) .*\n    {_TEXT}(; {_TEXT})*": "there is a message",
    r"DeleteTopics v6 .*ErrorCode: Kafka 29, ours 100.*": "neither a name nor an id is an unknown id",
    r"Fetch v1[3-7] .*'SessionEpoch': [1-9].*ErrorCode: Kafka 3, ours 100[^:]*": (
        "the id of a deleted topic in a session is an unknown id"
    ),
    r"Fetch v[0-3] .*Records: Kafka b.(?P<ours>.+).+., ours b.(?P=ours).": (
        "Kafka repeats the first converted entry where converted entries are smaller than it has promised"
    ),
    r"Fetch v3 .*'MaxBytes': 0.*Records: Kafka b'', ours b.+": (
        "where a marker of a transaction is all that fits, an old client gets what comes behind it"
    ),
    r"Fetch v\d+ .*'ForgottenTopicsData': \[\{.*\n    \.Responses: Kafka \[\{[^;]*, ours \[\]": (
        "a partition that a request names and forgets is forgotten"
    ),
    r"ListOffsets v[7-9] .*'Timestamp': -3.*(Offset|Timestamp|LeaderEpoch): Kafka -?\d+, ours -?\d+": (
        "of batches with the same largest time Kafka finds the first one"
    ),
    r"CreateTopics v\d .*'BrokerIds': \[\].*ErrorCode: Kafka \d+, ours 39": (
        "a partition without replicas is refused at once"
    ),
    r"IncrementalAlterConfigs v\d .*ErrorCode: Kafka -1, ours 40.*": (
        "an operation that a config does not have is no unknown error"
    ),
    r"DescribeClientQuotas v\d .*\n    \.ErrorCode: Kafka -1, ours (0|35|42); .*": (
        "what is wrong in a request is no unknown error"
    ),
}
