"""Requests of brokers that come to a broker which is not the controller."""

from __future__ import annotations

import uuid

from tests.acceptance.same_answers.recorder import Broker

__all__ = ["requests_of_brokers"]


def requests_of_brokers(broker: Broker) -> None:
    """ControlledShutdown, AlterPartition, AllocateProducerIds."""
    for number, epoch in ((1, 0), (1, -1), (7, 10**6), (-1, 0)):
        broker.ask_in_all("ControlledShutdown", BrokerId=number, BrokerEpoch=epoch)
        broker.ask_in_all("AllocateProducerIds", BrokerId=number, BrokerEpoch=epoch)
        partition = {
            "PartitionIndex": 0,
            "LeaderEpoch": 0,
            "NewIsr": [1],
            "NewIsrWithEpochs": [{"BrokerId": 1, "BrokerEpoch": epoch}],
            "LeaderRecoveryState": 0,
            "PartitionEpoch": 0,
        }
        topic = {"TopicName": "t", "TopicId": uuid.UUID(int=7), "Partitions": [partition, partition]}
        for topics in ([], [topic]):
            broker.ask_in_all("AlterPartition", BrokerId=number, BrokerEpoch=epoch, Topics=topics)
