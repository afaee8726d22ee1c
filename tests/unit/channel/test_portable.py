"""A channel without epoll and memory files, which only Linux has."""

from __future__ import annotations

import os
import select

import pytest

from ctrlchan.channel import OutcomeKind
from tests.fault.channels import MODES, channel_to, eventually, holdings, peers, run_in_fork_server
from tests.fault.requests import leader_and_isr, number_of, update


@pytest.mark.parametrize("senders", MODES)
def test_a_channel_works_with_the_portable_twins(senders: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    run_in_fork_server(monkeypatch, "import select; vars(select).pop('epoll', None)")
    with peers(3) as brokers, channel_to(brokers, senders=senders) as channel:
        sent = []
        for number in range(100):
            make = leader_and_isr if number % 10 == 0 else update
            sent += channel.send_requests([1, 2, 3], make(number, size=400_000 if number == 50 else 64))
        brokers[0].drop_connections()
        assert {outcome.kind for outcome in channel.wait(sent, 30)} == {OutcomeKind.ACKNOWLEDGED}
        for peer in brokers[1:]:
            assert [number_of(exchange.body) for exchange in peer.received] == list(range(100))
        for _ in range(5):
            channel.remove_broker(3)
            channel.add_broker(brokers[2].broker)
            channel.wait(channel.send_requests([3], update()), 10)
    eventually(lambda: holdings()["children"] == [])
