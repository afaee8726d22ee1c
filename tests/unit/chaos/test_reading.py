"""What readers of a chaos run keep for whoever looks at a failure."""

from __future__ import annotations

import json
from pathlib import Path

from ctrlchan import EmbeddedCluster
from tests.chaos.producing import TOPICS
from tests.chaos.reading import Follower
from tests.kafka.waiting import wait_until


def test_a_reader_writes_its_statistics(tmp_path: Path) -> None:
    topic = TOPICS[0]
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic(topic.name, topic.partitions)
        follower = Follower(cluster.bootstrap_servers, topic)
        follower.write_statistics(tmp_path)
        assert list(tmp_path.iterdir()) == []
        follower.start()
        wait_until(lambda: follower.statistics, what="librdkafka gives its statistics")
        follower.join()
    follower.write_statistics(tmp_path)
    [file] = tmp_path.iterdir()
    assert file.name == f"statistics-reader-of-{topic.name}.json"
    assert set(json.loads(file.read_text())["topics"]) == {topic.name}
    assert not follower.failures
