"""A day of authenticated sessions on a stopped clock: ``python -m tests.simulation.day``.

A simulated server with SASL has clients of each mechanism, which send requests now and then. They renew their
sessions, forget to, or are too old to know that sessions end; sit idle; send more than their quota; come for
one request only. Meanwhile passwords change, bearer tokens expire, and delegation tokens are made, renewed,
ended and removed. The clients compute for themselves what the server must do:

- Nobody is served after the end of his session, nor with a credential that is not valid.
- Nobody with a valid credential is refused, and everybody is served again at the end of a throttle.
- Connections that are idle for too long are closed, and no others.
- What the server keeps does not grow: connections, SASL exchanges, delegation tokens, sensors. The sensor
  of a client goes an hour after the client's last request, as in Kafka.

Processor, SASL, tokens and quotas are the product's; the time and the sockets are simulated. TLS is not: its
sockets are real. Tests in ``unit/server/test_listener_stores.py`` renew certificates.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import os
import random
import sys
import time
import traceback
import weakref
from base64 import b64encode
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.security.scram_client import ScramError
from ctrlchan.server._connection_quotas import ConnectionQuotas
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.server.delegation_tokens.token import Token
from ctrlchan.server.request_context import Principal
from ctrlchan.server.security.mechanisms import mechanisms
from ctrlchan.server.security.sasl_server import SaslListener, SaslServer
from ctrlchan.server.security.scram_credentials import credential_of_password, credential_to_text
from ctrlchan.server.security.scram_users import ScramUsers
from ctrlchan.server.security.unsecured_tokens import UnsecuredTokens
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.kafka.waiting import wait_until
from tests.simulation._operating_system import SimulatedClock
from tests.soak.listeners.targets import Login, Refused, frames_of_login
from tests.unit.server.security.sasl_clients import unsecured_token
from tests.unit.server.security.simulated_server import SimulatedClient, SimulatedServer
from tests.unit.zookeeper.sessions import session

__all__ = ["Day"]

MS: Final = 1_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
#: Milliseconds since 1970 when a day begins.
BEGIN: Final = 1_700_000_000_000
#: connections.max.reauth.ms, by mechanism. Bearer tokens end most sessions of theirs.
SESSION: Final = {
    "PLAIN": 15 * MINUTE,
    "SCRAM-SHA-256": 10 * MINUTE,
    "SCRAM-SHA-512": HOUR,
    "OAUTHBEARER": HOUR,
}
#: connections.max.idle.ms
IDLE: Final = 10 * MINUTE
#: Of client quotas: when a sensor goes, and how often that is looked at.
SENSOR_IDLE, SENSOR_SWEEP = HOUR, 30 * SECOND
#: Bytes that a client may produce in a second: more only over ten of them.
BYTE_RATE: Final = 1000.0
#: Connections in a second, and how many come at once each hour.
CONNECTION_RATE, BURST = 5, 80
#: Of delegation tokens.
TOKEN_LIFETIME, TOKEN_LIMIT = 2 * HOUR, 5 * HOUR
#: Clients renew their sessions or forget to, produce too much, are idle, or do not know that sessions end.
WAYS: Final = ("renews", "forgets", "greedy", "idle", "old", "renews")


class DayServer(SimulatedServer):
    """Charges requests to quotas. A request is the size that it stands for, then the name of its client."""

    def __init__(self, day: Day, listener: SaslListener) -> None:
        self._day = day
        self.quotas = ClientQuotas(clock=day.clock)
        bounds: list[float | None] = [None] * 4
        bounds[QuotaType.PRODUCE] = BYTE_RATE
        self.quotas.set_limits([("", "", bounds)])
        #: SASL exchanges that are in memory.
        self.exchanges: weakref.WeakSet[SaslServer] = weakref.WeakSet()
        super().__init__(
            listener,
            clock=day.clock,
            idle_ns=IDLE * MS,
            refusal_ms=0,
            authenticators=[lambda *_: self._begin(listener)],
            quotas=ConnectionQuotas(1, clock=day.clock),
        )

    def _begin(self, listener: SaslListener) -> SaslServer:
        made = SaslServer(listener)
        self.exchanges.add(made)
        return made

    def serve(self, request: TakenRequest) -> None:
        size, name = bytes(request.frame[2:]).split(b" ")
        user = request.context.principal.name
        client = self._day.by_name[name.decode()]
        assert client.user == user, f"{client} is served as {user}"
        assert self._day.clock.now_ns <= client.session_end_ns, (
            f"{client} is served after the end of its session"
        )
        throttle_ms = self.quotas.charge_request(
            self.quotas.user_number(user),
            name,
            0,
            is_exempt=True,
            quota_type=QuotaType.PRODUCE,
            size=int(size),
        )
        self._day.used_sensors[user, name.decode()] = self._day.clock.now_ms
        request.answer(b"%d" % throttle_ms, throttle_ms)


class DayClient:
    """One client, over all of its connections."""

    def __init__(self, day: Day, number: int, mechanism: str, way: str) -> None:
        self.name, self.mechanism, self.way = f"client-{number}", mechanism, way
        #: The user whose password or token it has; whose name its sessions have.
        self.login_user = self.user = "alice"
        self.token: Token | None = None
        self.bearer_token, self.bearer_expires_ms = "", 0
        self.password = ""
        self.connection: SimulatedClient | None = None
        self.session_end_ns = 0
        self.used_ns = 0
        self._day = day
        self._chance = day.chance

    def __str__(self) -> str:
        return f"{self.name} ({self.mechanism}, {self.way}) at {self._day.now_ms - BEGIN:,} ms"

    @property
    def period_ms(self) -> int:
        """Return how long it waits until it does something again."""
        seconds = {"idle": (400, 900), "greedy": (5, 60)}.get(self.way, (10, 90))
        return self._chance.randrange(*seconds) * SECOND + self._chance.randrange(SECOND)

    def act(self) -> None:
        """Do what is due. Raises AssertionError when the server does something else than it must."""
        day, connection = self._day, self.connection
        if connection is not None:
            idle_ms = (day.clock.now_ns - self.used_ns) // MS
            if connection.is_closed:
                assert idle_ms >= IDLE, f"{self}: the connection is closed"
                day.counted["idle"] += 1
                self.connection = connection = None
            else:
                # A turn of the processor may be some milliseconds later.
                assert idle_ms <= IDLE + SECOND, f"{self}: idle for {idle_ms} ms"
        if connection is None:
            self.connect()
        elif self.way == "renews" and self._left_ms < self._session_ms * 0.15:
            self.log_in("renewed")
        if self.connection is not None:
            self.request()

    @property
    def _left_ms(self) -> int:
        return (self.session_end_ns - self._day.clock.now_ns) // MS

    @property
    def _session_ms(self) -> int:
        return SESSION[self.mechanism]

    def connect(self) -> None:
        """Connect and log in, with a wrong credential now and then."""
        self.connection = SimulatedClient(self._day.server)
        if self._chance.random() < 0.1:
            self.log_in("refused", is_wrong=True)
        else:
            self.log_in("logged in")

    def log_in(self, what: str, *, is_wrong: bool = False) -> None:
        """Log in or renew the session; the server must agree if the credential is valid, and only then."""
        day, connection = self._day, self.connection
        assert connection is not None
        login, expires_ms = day.credential_of(self, is_wrong)
        version = None if self.way == "old" else 2
        frames = frames_of_login(login, version, self.bearer_token)
        last, accepted = b"", False
        frame = next(frames)
        try:
            while True:
                connection.send(frame)
                answers = connection.answers()
                if not answers:
                    break
                (last,) = answers
                frame = frames.send(last)
        except StopIteration:
            accepted = True
        except (Refused, ScramError):
            pass
        is_valid = not is_wrong
        assert accepted == is_valid, f"{self}: {what}, {login.user} with a credential of {expires_ms}"
        day.counted[what] += 1
        self.used_ns = day.clock.now_ns
        if not accepted:
            assert connection.is_closed, f"{self}: refused, and still connected"
            self.connection, self.session_end_ns = None, 0
            return
        session_ms = (
            self._session_ms if expires_ms is None else min(self._session_ms, expires_ms - day.now_ms)
        )
        if version is not None:
            assert int.from_bytes(last[-9:-1]) == session_ms, f"{self}: another end of the session"
        self.session_end_ns = day.clock.now_ns + session_ms * MS

    def request(self) -> None:
        """Send a request: it is answered until the session ends, and then closes the connection."""
        day, connection = self._day, self.connection
        assert connection is not None
        size = self._chance.randrange(20_000) if self.way == "greedy" else 10
        is_over = day.clock.now_ns > self.session_end_ns
        connection.send(b"q %d %s" % (size, self.name.encode()))
        self.used_ns = day.clock.now_ns
        answers = connection.answers()
        if is_over:
            assert not answers, f"{self}: an answer after the end of the session"
            assert connection.is_closed, f"{self}: still connected after the end of the session"
            day.counted["session over"] += 1
            self.connection = None
            return
        assert len(answers) == 1, f"{self}: {len(answers)} answers, closed {connection.is_closed}"
        day.counted["served"] += 1
        throttle_ms = int(answers[0])
        if throttle_ms:
            self._wait_for_end_of_throttle(connection, throttle_ms)

    def _wait_for_end_of_throttle(self, connection: SimulatedClient, throttle_ms: int) -> None:
        """Send one request more, answered when the time is over, until the client is not throttled."""
        day = self._day
        while throttle_ms:
            day.counted["throttled"] += 1
            connection.send(b"q 0 %s" % self.name.encode())
            day.server.skip((throttle_ms - 1) / 1000)
            assert connection.answers() == [], f"{self}: served before the end of the throttle"
            # The timer ends with a millisecond that has begun, and its turn may be the next one.
            day.server.run(0.005)
            self.used_ns = day.clock.now_ns
            if connection.is_closed:
                assert day.clock.now_ns > self.session_end_ns, f"{self}: closed before the end of the session"
                day.counted["session over"] += 1
                self.connection = None
                return
            answers = connection.answers()
            assert len(answers) == 1, f"{self}: not served after the throttle"
            throttle_ms = int(answers[0])

    def leave(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.server.system.reset(self.connection.number)
            self.connection.server.run()
            self.connection = None


class Day:
    """Hours of sessions; ``seed`` decides what happens. ``counted``: what has happened, by its kind."""

    def __init__(self, seed: int, clients: int = 40) -> None:
        self.chance = random.Random(seed)
        self.clock = SimulatedClock(BEGIN)
        self.counted: Counter[str] = Counter()
        self.used_sensors: dict[tuple[str, str], int] = {}
        self.by_name: dict[str, DayClient] = {}
        self.passwords: dict[str, str] = {}
        self._scram = ScramUsers()
        self._stack = ExitStack()
        self._numbers = clients
        try:
            self._start_tokens()
            self.server = self._server()
            for user in ("alice", "bob", "carol"):
                self.change_password(user)
            for number in range(clients):
                names = [*SESSION, "token"]
                mechanism = names[number % len(names)]
                # Five and six: after thirty clients there has been each pair.
                self._add(number, mechanism, WAYS[number % len(WAYS)])
        except BaseException:
            self._stack.close()
            raise

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.clock.now_ms

    def _start_tokens(self) -> None:
        zookeeper = self._stack.enter_context(MemoryZooKeeper())
        settings = DelegationTokenSettings(
            secret_key="the key of a day", expiry_time_ms=TOKEN_LIFETIME, max_lifetime_ms=TOKEN_LIMIT
        )
        self.tokens = DelegationTokens(
            settings,
            self._stack.enter_context(session(zookeeper.address)),
            "broker-1",
            removes_expired=lambda: True,
            now_ms=lambda: self.now_ms,
        )
        self.tokens.start()
        self._stack.callback(self.tokens.stop)

    def _server(self) -> DayServer:
        validate = UnsecuredTokens({}, lambda: self.now_ms)
        made = mechanisms(SESSION, self.passwords.get, self._scram.find, validate, self.tokens)
        return DayServer(self, SaslListener(made, SESSION, lambda: self.now_ms))

    def _add(self, number: int, mechanism: str, way: str) -> DayClient:
        by_token = mechanism == "token"
        client = DayClient(self, number, "SCRAM-SHA-256" if by_token else mechanism, way)
        client.login_user = client.user = self.chance.choice(("alice", "bob", "carol"))
        if by_token:
            client.token = self._new_token(client)
        self.by_name[client.name] = client
        return client

    # -- credentials

    def change_password(self, user: str) -> None:
        """Give a user another password, for PLAIN and SCRAM, which his clients know at once."""
        self.passwords[user] = f"{user}-{self.chance.getrandbits(64):x}"
        self._scram.set_user(
            user,
            {
                name: credential_to_text(credential_of_password(name, self.passwords[user], b"salt" * 5))
                for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            },
        )
        self.counted["passwords changed"] += 1

    def _new_token(self, client: DayClient) -> Token:
        owner = Principal.user(client.user)
        self.counted["tokens made"] += 1
        return self.tokens.create(owner, owner, [], -1)

    def credential_of(self, client: DayClient, is_wrong: bool) -> tuple[Login, int | None]:
        """Return with what a client logs in, and when that expires. A wrong one may have been right."""
        if client.mechanism == "OAUTHBEARER":
            now = self.now_ms
            if is_wrong:
                # It has expired, just now or long ago.
                expired = now // 1000 - self.chance.choice((0, 1, HOUR // 1000))
                client.bearer_token, client.bearer_expires_ms = self._bearer(client.user, expired), 0
            elif client.bearer_expires_ms < now + MINUTE:
                expires = now // 1000 + self.chance.randrange(300, 2400)
                client.bearer_token = self._bearer(client.user, expires)
                client.bearer_expires_ms = 1000 * expires
            return Login(client.mechanism, client.user, ""), client.bearer_expires_ms
        if client.token is not None:
            return self._token_login(client, is_wrong)
        password = self.passwords[client.user]
        if is_wrong:
            password = self.chance.choice(("", "x" + password, password[:-1], "never"))
        return Login(client.mechanism, client.user, password), None

    def _bearer(self, user: str, expires: int) -> str:
        return unsecured_token(sub=user, iat=expires - 3600, exp=expires)

    def _token_login(self, client: DayClient, is_wrong: bool) -> tuple[Login, int]:
        token = client.token
        assert token is not None
        owner = Principal.user(client.user)
        if is_wrong:
            # A token that was ended, or the HMAC of another one.
            ended = self.tokens.create(owner, owner, [], -1)
            hmac = self.tokens.hmac(ended)
            self.tokens.expire(owner, hmac, -1)
            name = self.chance.choice((ended.token_id, token.token_id))
            return Login(client.mechanism, name, b64encode(hmac).decode(), by_token=True), 0
        known = {one.token_id: one for one in self.tokens.all()}
        token = known.get(token.token_id)
        if token is None or token.has_expired(self.now_ms + MINUTE):
            token = self._new_token(client)
        elif token.expires_ms - self.now_ms < TOKEN_LIFETIME // 2:
            expires_ms = self.tokens.renew(owner, self.tokens.hmac(token), -1)
            token = token._replace(expires_ms=expires_ms)
            self.counted["tokens renewed"] += 1
            if expires_ms < self.now_ms + MINUTE:
                # Nothing makes it live longer than its limit.
                token = self._new_token(client)
        client.token = token
        password = b64encode(self.tokens.hmac(token)).decode()
        return Login(client.mechanism, token.token_id, password, by_token=True), token.expires_ms

    # -- time

    def run(self, hours: float, *, says: bool = False) -> None:
        """Let so many hours pass. Raises AssertionError. ``says``: print a line for each hour."""
        began = time.monotonic()
        end_ms = self.now_ms + round(hours * HOUR)
        due = [(self.now_ms + self.chance.randrange(MINUTE), name) for name in sorted(self.by_name)]
        heapq.heapify(due)
        next_hour_ms, next_password_ms = self.now_ms + HOUR, self.now_ms + 20 * MINUTE
        while due[0][0] < end_ms:
            at_ms, name = heapq.heappop(due)
            # Others may have let time pass.
            if at_ms > self.now_ms:
                self.server.skip((at_ms - self.now_ms) / 1000)
            if self.now_ms >= next_password_ms:
                next_password_ms += 20 * MINUTE
                self.change_password(self.chance.choice(("alice", "bob", "carol")))
                self._visit()
            client = self.by_name[name]
            client.act()
            heapq.heappush(due, (self.now_ms + client.period_ms, name))
            if self.now_ms >= next_hour_ms:
                next_hour_ms += HOUR
                self._end_hour()
                if says:
                    hour = (self.now_ms - BEGIN) // HOUR
                    seconds = time.monotonic() - began
                    done = f"{self.counted['served']:,} requests, {self.counted['logged in']:,} logins"
                    print(
                        f"hour {hour} of {hours:g}, {seconds:.0f} s: {done}; kept: {self.sizes()}", flush=True
                    )
        self._end_hour()

    def close(self) -> None:
        """Stop the server; nothing of it is left. Raises AssertionError."""
        try:
            self.server.threads.stop(0)
            for _ in range(5):
                self.server.threads.turn(0)
            assert self.server.counters.connections == 0
            for client in self.by_name.values():
                client.connection = None
            exchanges = self.server.exchanges
            self.server.__dict__.clear()
            gc.collect()
            assert not exchanges
        finally:
            self._stack.close()

    def _visit(self) -> None:
        """Let a client come for one request, with a client id that nobody has used before."""
        self._numbers += 1
        visitor = self._add(self._numbers, self.chance.choice([*SESSION, "token"]), "visits")
        while visitor.connection is None:
            visitor.connect()
        visitor.request()
        visitor.leave()
        if visitor.token is not None:
            self.tokens.expire(Principal.user(visitor.user), self.tokens.hmac(visitor.token), -1)
        del self.by_name[visitor.name]

    def _burst(self) -> None:
        """Let many connect at once: they are accepted at the rate that is allowed, each in time."""
        server, system = self.server, self.server.system
        server.threads.limit_connections(2**31 - 1, CONNECTION_RATE, [(2**31 - 1, 2**31 - 1)])
        before = server.counters.opened
        numbers = [system.connect(1000) for _ in range(BURST)]
        accepted = [server.counters.opened - before]
        # Eleven samples of a second are at least ten.
        for _ in range(BURST // CONNECTION_RATE + 11):
            server.run()
            accepted.append(server.counters.opened - before)
            server.skip(1)
        assert accepted[1] <= 11 * CONNECTION_RATE, accepted
        assert accepted[-1] == BURST, accepted
        for number in numbers:
            system.reset(number)
        server.threads.limit_connections(2**31 - 1, 2**31 - 1, [(2**31 - 1, 2**31 - 1)])
        server.run()

    def sizes(self) -> dict[str, int]:
        """Return how much the server keeps."""
        return {
            "connections": self.server.counters.connections,
            "exchanges": len(self.server.exchanges),
            "tokens": len(self.tokens.all()),
            "sensors": len(self.server.quotas.sensors_now()),
        }

    def _end_hour(self) -> None:
        """Compare what the server keeps and has counted with what it must. Raises AssertionError."""
        self._burst()
        server, now = self.server, self.now_ms
        # The thread of the tokens has a clock of its own for its interval.
        self.tokens.check_now()
        wait_until(
            lambda: not any(one.has_expired(now) for one in self.tokens.all()),
            what="expired tokens are removed",
        )
        connected = [
            one
            for one in self.by_name.values()
            if one.connection is not None and not one.connection.is_closed
        ]
        for one in self.by_name.values():
            if one not in connected and one.connection is not None:
                idle_ms = (self.clock.now_ns - one.used_ns) // MS
                assert idle_ms >= IDLE, f"{one}: the connection is closed after {idle_ms} ms"
        gc.collect()
        sizes = self.sizes()
        assert sizes["connections"] == len(connected), sizes
        # The place of a connection keeps its exchange until another connection takes the place. So there are
        # never more of them than there were connections at once.
        assert len(connected) <= sizes["exchanges"] <= len(self.by_name) + BURST + 1, sizes
        assert sizes["tokens"] <= 2 * len(self.by_name), sizes
        self._check_sensors(now)
        counters = server.counters
        counted = self.counted
        assert counters.sessions_expired == counted["session over"], (counters, counted)
        assert counters.renewed == counted["renewed"], (counters, counted)
        assert counters.authenticated == counted["logged in"], (counters, counted)
        assert counters.authentications_failed == counted["refused"], (counters, counted)
        assert counters.renewals_failed == counters.not_authenticated == 0, counters
        server.lines.clear()

    def _check_sensors(self, now: int) -> None:
        found = {(user, client) for _, user, client, *_ in self.server.quotas.sensors_now()}
        late = {name for name, used in self.used_sensors.items() if now - used > SENSOR_IDLE + SENSOR_SWEEP}
        needed = {name for name, used in self.used_sensors.items() if now - used < SENSOR_IDLE}
        assert not found & late, f"sensors of clients that are long gone: {found & late}"
        assert found >= needed, f"sensors that are gone too early: {needed - found}"
        for name in late:
            del self.used_sensors[name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.day", description=__doc__)
    parser.add_argument("--seed", type=int, help="decides what happens (default: a random one)")
    parser.add_argument("--hours", type=float, default=24.0)
    arguments: Any = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    begin = time.monotonic()
    day = Day(seed)
    try:
        day.run(arguments.hours, says=True)
    except Exception as error:  # noqa: BLE001  (whatever ends a day is a finding)
        traceback.print_exc()
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        print(f"the same again: python -m tests.simulation.day --seed {seed}", flush=True)
        return 1
    day.close()
    print(", ".join(f"{kind}: {number:,}" for kind, number in day.counted.most_common()))
    print(f"seed {seed}: {arguments.hours:g} hours in {time.monotonic() - begin:.1f} s, every guarantee held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
