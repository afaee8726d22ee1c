"""``ctrlchan log dump`` beside Kafka's DumpLogSegments: records of the coordinator, and markers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.coordinator.transaction.record_texts import text_of
from ctrlchan.broker.log.dump import dump_file
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from tests.kafka.dump_tool import complaints, dump_files
from tests.kafka.waiting import wait_until

TIMEOUT = 60


def run_transactions(cluster: EmbeddedCluster) -> None:
    """One transactional id commits, aborts, and begins; another one has done nothing."""
    cluster.create_topic("orders", 2)
    for transactional_id, ends in (("busy", ["commit", "abort", None]), ("idle-\N{SNOWMAN}", [])):
        producer: Any = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
        )
        producer.init_transactions(TIMEOUT)
        for end in ends:
            producer.begin_transaction()
            producer.produce("orders", "x", partition=1)
            assert producer.flush(TIMEOUT) == 0
            if end == "commit":
                producer.commit_transaction(TIMEOUT)
            elif end == "abort":
                producer.abort_transaction(TIMEOUT)
    wait_until(
        lambda: sorted(one.state for one in cluster.transactions()) == ["Empty", "Ongoing"],
        what="the end of the second transaction",
        timeout=TIMEOUT,
    )


def test_both_tools_show_the_same(kafka_jars_ready: None, tmp_path: Path) -> None:
    with EmbeddedCluster(log_dir=tmp_path, configs={"transaction.state.log.num.partitions": 2}) as cluster:
        run_transactions(cluster)
    segments = sorted(tmp_path.rglob("*-*/*.log"))
    of_coordinator = [one for one in segments if one.parent.name.startswith(TRANSACTIONS_TOPIC)]
    assert of_coordinator
    shown = [
        (row["offset"], row["key"], row["payload"])
        for file in of_coordinator
        for row in dump_file(file, records=True, texts={TRANSACTIONS_TOPIC: text_of})
        if "key" in row
    ]
    states = [match[1] for _, _, payload in shown if (match := re.search(r"state=(\w+)", payload))]
    assert {"Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"} == {
        *states
    }
    _, output = dump_files(of_coordinator, "--transaction-log-decoder")
    assert complaints(output) == []
    theirs = re.findall(r"^\| offset: (\d+) .* key: (\S+) payload: (.*)$", output, re.MULTILINE)
    assert [(int(offset), key, payload) for offset, key, payload in theirs] == shown

    of_topic = [one for one in segments if one.parent.name.startswith("orders-")]
    markers = [
        (row["endTxnMarker"], row["coordinatorEpoch"])
        for file in of_topic
        for row in dump_file(file, records=True)
        if "endTxnMarker" in row
    ]
    assert [name for name, _ in markers] == ["COMMIT", "ABORT"]
    _, output = dump_files(of_topic, "--print-data-log")
    theirs = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", output)
    assert [(name, int(epoch)) for name, epoch in theirs] == markers
