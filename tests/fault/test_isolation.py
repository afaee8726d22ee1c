"""An error while a sender process serves one broker is a failure of that broker alone."""

from __future__ import annotations

import logging

import pytest

from ctrlchan import Broker, Endpoint, SecurityProtocol
from ctrlchan.channel import ControllerChannelManager, OutcomeKind, target
from ctrlchan.security.failure import Failure
from tests.fault.channels import MODES, config, eventually, peers
from tests.fault.requests import number_of, update

BAD_HOSTS = ["a\0b", "\ud800", "\0"]


def broker_at(host: str, port: int) -> Broker:
    return Broker(9, 1, (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, port),))


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_registration_with_a_bad_host_is_left_out(host: str) -> None:
    with peers(1) as [peer], ControllerChannelManager(config(), 7) as channel:
        channel.startup([peer.broker])
        channel.add_broker(broker_at(host, peer.port))
        assert channel.left_out[9].startswith("broker 9: host: ")
        assert list(channel.describe()["brokers"]) == [1]
        assert channel.wait([channel.send_request(1, update())], 10)[0].kind is OutcomeKind.ACKNOWLEDGED


@pytest.mark.parametrize("senders", MODES)
@pytest.mark.parametrize("host", BAD_HOSTS)
def test_an_error_while_one_broker_is_served_leaves_the_others_alone(
    host: str, senders: str | int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host raises ValueError or UnicodeError in the sender, like an unknown defect."""
    monkeypatch.setattr(target, "_check_host", lambda broker_id, host: None)
    with peers(3) as brokers, ControllerChannelManager(config(senders=senders), 7) as channel:
        channel.startup([peer.broker for peer in brokers])
        channel.add_broker(broker_at(host, brokers[0].port))
        late = channel.send_request(9, update())
        eventually(lambda: channel.describe()["brokers"][9]["attempts"] >= 20)
        for number in range(20):
            outcomes = channel.wait(channel.send_requests([1, 2, 3], update(number)), 10)
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
            assert {outcome.sender_deaths for outcome in outcomes} == {0}
        described = channel.describe()["brokers"][9]
        assert described["last_error"].startswith(f"{Failure.INTERNAL.text}: ")
        assert "Error: " in described["last_error"]
        assert "\n" not in described["last_error"]
        assert not late.done
        # A broker with this id and a good host is another generation, and works.
        monkeypatch.undo()
        channel.add_broker(broker_at("127.0.0.1", brokers[0].port))
        assert channel.wait([channel.send_request(9, update(99))], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
    assert [peer.connections for peer in brokers] == [2, 1, 1]
    assert [number_of(exchange.body) for exchange in brokers[1].received] == list(range(20))
    tracebacks = [record for record in caplog.records if "Traceback" in record.getMessage()]
    assert len(tracebacks) == 1
    assert tracebacks[0].levelno == logging.ERROR
