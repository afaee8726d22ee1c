"""The embedded broker against a real one: the same requests get the same responses.

Byte for byte, but for the order of what a JVM's maps hold in answers to clients (``without_map_order``).
"""

from __future__ import annotations

import json

import pytest

from ctrlchan.launch.embedded import EmbeddedBroker
from tests.acceptance.client_frames import without_map_order
from tests.acceptance.recordings import RealRecordings, ask
from tests.acceptance.scenarios import SCENARIOS, Scenario
from tests.kafka.rig import KafkaRig


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_it_answers_like_a_real_broker(
    scenario: Scenario, recordings: RealRecordings, kafka: KafkaRig
) -> None:
    real = recordings.of(scenario)
    cluster_id = json.loads(kafka.zookeeper.get("/cluster/id")[0])["id"]
    target = real.target
    differences = []
    with EmbeddedBroker(target.broker_id, epoch=target.broker_epoch, cluster_id=cluster_id) as embedded:
        for number, recorded in enumerate(real.exchanges):
            answer = ask("127.0.0.1", embedded.port, recorded.request)
            if without_map_order(recorded.request, answer) != without_map_order(
                recorded.request, recorded.response
            ):
                differences.append(
                    f"exchange {number}, {recorded.exchange.label}:\n"
                    f"  real     {_hex(recorded.response)}\n  embedded {_hex(answer)}"
                )
    if differences:
        pytest.fail(
            f"{len(differences)} of {len(real.exchanges)} answers differ, first:\n"
            + "\n".join(differences[:3]),
            pytrace=False,
        )


def _hex(response: bytes | None) -> str:
    return "closed the connection" if response is None else response.hex()
