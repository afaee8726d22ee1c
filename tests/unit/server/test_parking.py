"""Parked requests: completed by other threads, by their deadlines, or never. Delayed requests."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack

from tests.kafka.waiting import wait_until
from tests.unit.server._echo import complete_request
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    delayed,
    handling,
    parked,
    serving,
    still_serves,
    wait_for_connections,
)

COMPLETED, EXPIRED = b"\x01", b"\x02"
LONG = 600_000  # milliseconds


def wait_for_parked(hot: EchoHandler, count: int) -> None:
    wait_until(lambda: hot.parked == count, what=f"{count} parked requests")


def test_a_parked_request_is_completed_by_another_thread() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as client:
        for i in range(100):
            client.frames(parked(LONG, b"%d" % i), b"e next")
            wait_for_parked(hot, i + 1)
            complete_request(server.threads, hot.token(i))
            assert client.answers(2) == [COMPLETED + b"%d" % i, b"e next"]
        assert hot.states == 0


def test_a_parked_request_expires() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as client:
        client.frames(*[parked(wait_ms) for wait_ms in (-1, 0, 1, 2, 70, 100)])
        assert client.answers(6) == [EXPIRED] * 6
        # Those that may not wait at all are never parked.
        assert server.counters()[0][0].expired == 4


def test_a_request_may_be_parked_again_until_its_deadline() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as client:
        client.frames(parked(100, b"x", kind=b"r"))
        wait_for_parked(hot, 1)
        for _ in range(10):
            complete_request(server.threads, hot.token(0))
        assert client.answer() == EXPIRED + b"x"


def test_a_token_completes_its_own_request_alone() -> None:
    hot = EchoHandler()
    with serving(hot) as server:
        with Client(server) as client:
            client.frames(parked(1), parked(LONG))
            assert client.answer() == EXPIRED
            wait_for_parked(hot, 2)
            complete_request(server.threads, hot.token(0))
            complete_request(server.threads, hot.token(1))
            complete_request(server.threads, hot.token(0))
            assert client.answer() == COMPLETED
            for token in (0, 1, 2**64 - 1, hot.token(1) ^ 0x00FFFF, hot.token(1) ^ 0xFF000000):
                complete_request(server.threads, token)
            client.frames(parked(LONG))
            wait_for_parked(hot, 3)
        # The connection's place is used again: the old token is not the new request's.
        with Client(server) as one, Client(server) as two:
            one.frames(parked(300))
            two.frames(parked(300))
            complete_request(server.threads, hot.token(2))
            assert one.answer() == EXPIRED
            assert two.answer() == EXPIRED


def test_a_parked_request_of_a_lost_connection_is_released() -> None:
    hot = EchoHandler()
    with serving(hot) as server:
        for i in range(20):
            with Client(server) as client:
                client.frames(parked(LONG), b"e")
                wait_for_parked(hot, i + 1)
                client.reset()
        wait_for_connections(server, 0)
        assert (hot.states, hot.abandoned) == (0, 20)
        for i in range(20):
            complete_request(server.threads, hot.token(i))
        assert still_serves(server)


def test_completions_race_with_deadlines_and_lost_connections() -> None:
    hot = EchoHandler()
    ended = threading.Event()
    with serving(hot, num_network_threads=1) as server:

        def complete_any(seed: int) -> None:
            chance = random.Random(seed)
            while not ended.is_set():
                if hot.parked:
                    complete_request(server.threads, hot.token(chance.randrange(hot.parked)))

        threads = [threading.Thread(target=complete_any, args=[seed]) for seed in range(2)]
        for thread in threads:
            thread.start()
        chance = random.Random(5)
        try:
            for _ in range(10):
                with ExitStack() as stack:
                    clients = [stack.enter_context(Client(server)) for _ in range(20)]
                    for client in clients:
                        client.frames(*[parked(chance.randrange(20), b"%d" % i) for i in range(20)])
                    for client in clients[::2]:
                        for i, answer in enumerate(client.answers(20)):
                            assert answer[:1] in (COMPLETED, EXPIRED)
                            assert answer[1:] == b"%d" % i
                    for client in clients[1::2]:
                        client.reset()
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        wait_for_connections(server, 0)
        assert hot.states == 0


def test_parked_connections_keep_what_was_sent_behind() -> None:
    """A parked request and pipelined ones behind it outlive the buffers of the processor."""
    hot = EchoHandler()
    frames = [parked(LONG, b"first"), b"e" * 10, b"e" * 60_000, b"e" * 200_000]
    with serving(hot) as server, ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for _ in range(50)]
        senders = [threading.Thread(target=client.frames, args=frames) for client in clients]
        for sender in senders:
            sender.start()
        wait_for_parked(hot, 50)
        assert still_serves(server)
        for i in range(50):
            complete_request(server.threads, hot.token(i))
        for client in clients:
            assert client.answers(4) == [COMPLETED + b"first", *frames[1:]]
        for sender in senders:
            sender.join()


def test_a_delayed_request_holds_up_its_own_connection_alone() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as slow, Client(server) as other:
        slow.frames(delayed(LONG, b"e late"), b"e behind it")
        for _ in range(3):
            other.frames(delayed(1, b"e late"), b"e next", delayed(0, b"e again"), b"e last")
            assert other.answers(4) == [b"e late", b"e next", b"e again", b"e last"]
        assert server.counters()[0][0].expired == 0


def test_a_delayed_request_may_be_parked_queued_or_closed() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as client:
        client.frames(delayed(1, parked(1, b"x")), delayed(1, b"n"), delayed(1, parked(LONG, b"y")))
        assert client.answer() == EXPIRED + b"x"
        wait_for_parked(hot, 2)
        complete_request(server.threads, hot.token(1))
        assert client.answer() == COMPLETED + b"y"
        with handling(server, lambda request: request.answer(b"from the queue")):
            client.frames(delayed(1, b"q"))
            assert client.answer() == b"from the queue"
        client.frames(delayed(1, b"c"))
        assert client.is_closed()


def test_a_delay_ends_with_its_connection_and_with_the_server() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as first:
        with Client(server) as lost:
            lost.frames(delayed(LONG, b"e nobody reads this"))
            wait_until(lambda: server.counters()[0][0].requests == 1, what="a delayed request")
            lost.reset()
        wait_for_connections(server, 1)
        with Client(server) as again:
            again.frames(parked(1, b"the slot is used again"))
            assert again.answer() == EXPIRED + b"the slot is used again"
        first.frames(delayed(LONG, b"e at the end"))
        wait_until(lambda: server.counters()[0][0].requests == 3, what="a delayed request")
        server.stop()
        assert first.answer() == b"e at the end"
