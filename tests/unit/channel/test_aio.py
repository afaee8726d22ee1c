"""The channel under asyncio: the same outcomes, no thread for each call, cancellation of queued requests."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from ctrlchan.channel import ControllerChannelManager, Outcome, OutcomeKind
from ctrlchan.channel.aio import _BRIDGES
from ctrlchan.errors import ChannelClosedError
from tests.fault.channels import config, eventually, holdings, peers
from tests.fault.peer import Peer, silence, succeed
from tests.fault.requests import leader_and_isr, number_of, update


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 30))


def numbers(peer: Peer) -> list[int]:
    return [number_of(exchange.body) for exchange in peer.received]


async def until(peer: Peer, count: int) -> None:
    await asyncio.to_thread(peer.until, lambda: len(peer.received) >= count)


def test_a_channel_is_used_and_ended_by_async_with() -> None:
    before = holdings()["children"]

    async def main(brokers: list[Peer]) -> None:
        async with ControllerChannelManager(config(), 7) as channel:
            channel.startup([peer.broker for peer in brokers])
            one: Outcome = await channel.send(2, update(0))
            assert (one.kind, one.broker_id) == (OutcomeKind.ACKNOWLEDGED, 2)
            many: list[Outcome] = await channel.send([3, 1, 9], update(1))
            assert [outcome.broker_id for outcome in many] == [3, 1, 9]
            assert [outcome.kind.value for outcome in many] == ["acknowledged"] * 2 + ["broker gone"]
            assert await channel.send([], update()) == []
            sent = channel.send_request(1, update(2))
            outcome = await sent
            assert outcome is sent.outcome
            # Await it again, in several tasks.
            assert await asyncio.gather(*[_await(sent) for _ in range(3)]) == [outcome] * 3
        with pytest.raises(ChannelClosedError):
            await channel.send(1, update())

    with peers(3) as brokers:
        run(main(brokers))
        assert holdings()["children"] == before


async def _await(sent: Any) -> Outcome:
    outcome: Outcome = await sent
    return outcome


def test_many_calls_at_once_take_no_thread_and_few_wake_ups() -> None:
    async def main(brokers: list[Peer]) -> None:
        async with ControllerChannelManager(config(), 7) as channel:
            channel.startup([peer.broker for peer in brokers])
            await channel.send([1, 2, 3, 4], update())
            for peer in brokers:
                peer.default = silence
            loop = asyncio.get_running_loop()
            wake_ups = 0
            call_soon_threadsafe = loop.call_soon_threadsafe

            def counted(*arguments: Any, **settings: Any) -> asyncio.Handle:
                nonlocal wake_ups
                wake_ups += 1
                return call_soon_threadsafe(*arguments, **settings)

            loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
            before = threading.active_count()
            tasks = [
                asyncio.ensure_future(channel.send([1, 2, 3, 4], update(number))) for number in range(500)
            ]
            await asyncio.sleep(0)
            assert threading.active_count() == before
            # All unfinished requests end in one turn of the channel's thread; the loop does not run then.
            channel.resign()
            eventually(lambda: len(_BRIDGES[loop]._ready) == len(tasks))
            assert wake_ups == 1
            outcomes = [outcome for task in tasks for outcome in await task]
            assert len(outcomes) == 2000
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.FENCED}
            del loop.call_soon_threadsafe

    with peers(4) as brokers:
        run(main(brokers))


def test_a_cancelled_task_cancels_only_its_queued_requests() -> None:
    async def main(brokers: list[Peer]) -> None:
        slow, fast = brokers
        async with ControllerChannelManager(config(), 7) as channel:
            channel.startup([peer.broker for peer in brokers])
            slow.gate.clear()
            # Because of its callback the sender has only this request; later ones are queued.
            in_hand = channel.send_request(1, leader_and_isr(0), lambda _: None)
            task = asyncio.ensure_future(channel.send([1, 2], update(1)))
            await until(fast, 1)
            alone = asyncio.ensure_future(channel.send(1, update(2)))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_await(in_hand), 0.05)
            for one in (task, alone):
                await asyncio.sleep(0)
                one.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await one
            last = channel.send_request(1, update(3))
            slow.gate.set()
            assert (await last).kind is OutcomeKind.ACKNOWLEDGED
            assert (await in_hand).kind is OutcomeKind.ACKNOWLEDGED
            assert numbers(slow) == [0, 3]
            assert numbers(fast) == [1]

    with peers(2) as brokers:
        run(main(brokers))


def test_a_time_limit_and_a_callback_work_as_without_asyncio() -> None:
    async def main(peer: Peer) -> None:
        async with ControllerChannelManager(config(), 7) as channel:
            channel.add_broker(peer.broker)
            peer.gate.clear()
            called_with: list[OutcomeKind] = []
            first = channel.send_request(1, leader_and_isr(0), lambda _: None)
            outcome = await channel.send(1, update(1), lambda end: called_with.append(end.kind), timeout=0.02)
            assert outcome.kind is OutcomeKind.CANCELLED
            assert called_with == [OutcomeKind.CANCELLED]
            peer.gate.set()
            await first

    with Peer() as peer:
        run(main(peer))


def test_several_event_loops_share_a_channel_and_are_forgotten() -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    with peers(2) as brokers, ControllerChannelManager(config(), 7) as channel:
        channel.startup([peer.broker for peer in brokers])

        async def main(start: int) -> None:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            for number in range(start, start + 50):
                for outcome in await channel.send([1, 2], update(number)):
                    assert outcome.kind is OutcomeKind.ACKNOWLEDGED

        threads = [threading.Thread(target=lambda i=i: run(main(i * 50))) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(numbers(brokers[0])) == list(range(150))
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
    assert all(loop is not None for loop in _BRIDGES)


def test_an_event_loop_may_close_before_the_outcome(caplog: pytest.LogCaptureFixture) -> None:
    with Peer() as peer, ControllerChannelManager(config(), 7) as channel:
        channel.add_broker(peer.broker)
        release = threading.Event()

        def later(exchange: Any) -> None:
            release.wait(10)
            succeed(exchange)

        peer.script.append(later)
        sent = channel.send_request(1, update(0))
        peer.until(lambda: len(peer.received) == 1)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(asyncio.sleep(0))
        task = loop.create_task(_await(sent))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        release.set()
        assert channel.wait([sent], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        eventually(lambda: not sent.listeners)
        # The loop is closed, so the coroutine is never resumed.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        assert not [record for record in caplog.records if "listener" in record.message]
