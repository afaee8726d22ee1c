"""Every version of the three requests changes the state of real brokers.

The inter.broker.protocol.version fixes the versions, so the list of these holds every LeaderAndIsr 0-7,
UpdateMetadata 0-8 and StopReplica 0-4 at least once.
"""

from __future__ import annotations

import pytest

from ctrlchan._codec import HIGHEST_VERSION, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import request_versions
from tests.acceptance.clients import consume, metadata, produce
from tests.acceptance.protocols import INTER_BROKER_PROTOCOLS
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig


@pytest.mark.parametrize("api_key", [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA])
def test_the_list_of_protocols_holds_every_version(api_key: int) -> None:
    versions = {request_versions(ibp).for_api(api_key) for ibp in INTER_BROKER_PROTOCOLS}
    assert versions == set(range(HIGHEST_VERSION[api_key] + 1))


@pytest.mark.parametrize("ibp", INTER_BROKER_PROTOCOLS)
def test_a_topic_is_created_moved_and_deleted_in_every_version(
    ibp: str, kafka: KafkaRig, controller: ZkController, znodes: ControllerZnodes
) -> None:
    """Created, written, moved to another leader, read from there, deleted."""
    topic = f"by-{ibp}"
    versions = request_versions(ibp)
    with ZkController(kafka, znodes, inter_broker_protocol=ibp) as older:
        outcomes = older.create_topic(topic, {0: [1, 2], 1: [3, 1]})
        values = [b"%s %d" % (ibp.encode(), n) for n in range(5)]
        produce(kafka.bootstrap, topic, values, partition=0)
        outcomes += older.move_leader(topic, 0, 2)
        for broker_id in kafka.broker_ids:
            view = metadata(kafka, broker_id, [topic])[topic]
            assert [(p, v.leader, v.leader_epoch) for p, v in sorted(view.partitions.items())] == [
                (0, 2, 1),
                (1, 3, 0),
            ]
            # v7 brings topic ids to the metadata.
            assert (view.topic_id != b"") == (versions.update_metadata >= 7)
        assert consume(kafka.bootstrap, topic, 0, len(values)) == values
        outcomes += older.delete_topic(topic)
    assert refused(outcomes) == []
    assert {(o.api_key, o.version) for o in outcomes} == {
        (api, versions.for_api(api)) for api in (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)
    }
    for broker_id in kafka.broker_ids:
        assert metadata(kafka, broker_id, [topic])[topic].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        left = [name for name in kafka.data_folders(broker_id) if name.startswith(topic)]
        assert all(name.endswith("-delete") for name in left)
