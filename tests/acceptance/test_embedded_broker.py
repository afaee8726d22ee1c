"""The embedded broker against a real one: the same requests get the same responses.

Byte for byte, but for the order of what a JVM's maps hold in answers to clients (``without_map_order``).
"""

from __future__ import annotations

import json

import pytest

from ctrlchan.broker import EmbeddedBroker
from tests.acceptance.client_frames import without_map_order
from tests.acceptance.conversation import RealConversations, ask
from tests.acceptance.scenarios import SCENARIOS, Scenario
from tests.kafka.rig import KafkaRig


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_it_answers_like_a_real_broker(
    scenario: Scenario, conversations: RealConversations, kafka: KafkaRig
) -> None:
    real = conversations.about(scenario)
    cluster_id = json.loads(kafka.zookeeper.get("/cluster/id")[0])["id"]
    target = real.target
    differences = []
    with EmbeddedBroker(target.broker_id, epoch=target.broker_epoch, cluster_id=cluster_id) as embedded:
        for number, said in enumerate(real.said):
            answer = ask("127.0.0.1", embedded.port, said.request)
            if without_map_order(said.request, answer) != without_map_order(said.request, said.response):
                differences.append(
                    f"exchange {number}, {said.exchange.label}:\n"
                    f"  real     {_hex(said.response)}\n  embedded {_hex(answer)}"
                )
    if differences:
        pytest.fail(
            f"{len(differences)} of {len(real.said)} answers differ, first:\n" + "\n".join(differences[:3]),
            pytrace=False,
        )


def _hex(response: bytes | None) -> str:
    return "closed the connection" if response is None else response.hex()
