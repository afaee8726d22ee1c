"""``python -m tests.soak.listeners [seconds] [--seed N]``: hostile handshakes and logins at a broker.

A broker with a listener of each security protocol, and delegation tokens. Meanwhile clients that do nothing
wrong must be served. Afterwards nothing has ended or grown, no connection is left, and what the broker has
logged has no secret in it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import psutil
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kio.static.primitive import i64Timedelta

import ctrlchan
from tests.soak.listeners.storm import Storm
from tests.soak.listeners.targets import (
    Credentials,
    Login,
    Target,
    check_served,
    frames_of_login,
    open_stream,
    receive_frame,
    sized,
)
from tests.soak.processes import GROWTH, Figures, figures, logged_to, show_log, wait_for_rest
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.forged_records import SUITES
from tests.unit.server.tls_serving import authority_pem, certificate, client_context, pem_of

USERS: Final = {"alice": "alice-secret-0d1c", "bob": "bob-secret-7f3a"}
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
LISTENERS: Final = {"TLS": "SSL", "LOGINS": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
#: Connections of clients that do nothing wrong, which the process may keep open.
DESCRIPTORS: Final = 8
#: Hostile ones, each of which waits most of its time.
PEERS: Final = 12
#: Seconds between two lines about the progress.
SAYING: Final = 10.0


def configs(folder: Path) -> dict[str, str]:
    """Return the settings of the broker; its certificates are written into ``folder``."""
    key, authority = folder / "broker.pem", folder / "authority.pem"
    given = pem_of(certificate("broker"))
    key.write_text(given["key_pem"] + given["certificate_pem"])
    authority.write_text(authority_pem())
    found = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"PLAINTEXT": "PLAINTEXT", **LISTENERS}.items()
        ),
        "ssl.keystore.location": str(key),
        "ssl.truststore.location": str(authority),
        "ssl.cipher.suites": ",".join(SUITES),
        "listener.name.tls.ssl.client.auth": "requested",
        "delegation.token.secret.key": "the key of the hostile peers' broker",
        "connections.max.reauth.ms": "60000",
        "connections.max.idle.ms": "5000",
        "connection.failed.authentication.delay.ms": "1",
    }
    modules = "org.apache.kafka.common.security"
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    logins = {
        "plain": f"{modules}.plain.PlainLoginModule required {users};",
        "scram-sha-256": f"{modules}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{modules}.scram.ScramLoginModule required;",
        "oauthbearer": f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
    }
    for name in ("logins", "both"):
        found[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism, login in logins.items():
            found[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = login
    return found


def create_users(address: str) -> None:
    """Give the users their SCRAM credentials."""
    admin = AdminClient({"bootstrap.servers": address})
    changes = [
        UserScramCredentialUpsertion(
            user,
            ScramCredentialInfo(getattr(ScramMechanism, name.replace("-", "_")), 4096),
            password.encode(),
        )
        for user, password in USERS.items()
        for name in SCRAM
    ]
    for done in admin.alter_user_scram_credentials([*changes]).values():
        done.result(60)


def create_token(port: int) -> tuple[str, str]:
    """Make a delegation token of bob; return its id and its password."""
    target = Target("LOGINS", port, (), MECHANISMS)
    with open_stream(target, None, 60) as stream:
        frames = frames_of_login(Login("PLAIN", "bob", USERS["bob"]), 2, "")
        frame = next(frames)
        try:
            while True:
                stream.sendall(sized(frame))
                frame = frames.send(receive_frame(stream))
        except StopIteration:
            pass
        longest = i64Timedelta.parse(timedelta(days=1))
        stream.sendall(sized(client_frame(38, 1, renewers=(), max_lifetime=longest)))
        made: Any = read_client_response(38, 1, receive_frame(stream))
        assert made.error_code.value == 0, made
        return made.token_id, b64encode(made.hmac).decode()


def round_of(
    seconds: float,
    targets: Sequence[Target],
    credentials: Credentials,
    seed: int,
    watched: Sequence[psutil.Process],
) -> Counter[str]:
    """Let the peers loose for so long. Raises AssertionError."""
    chance = random.Random(seed)
    storm = Storm(targets, credentials, seed, peers=PEERS)
    begin = said = monotonic()
    served = 0
    try:
        while monotonic() < begin + seconds and not storm.failures:
            for target in targets:
                served += check_served(target, credentials, chance)
            assert all(one.is_running() for one in watched), "a broker has ended"
            if monotonic() > said + SAYING:
                said = monotonic()
                print(
                    f"{said - begin:.0f} of {seconds:g} s: {storm.connections:,} hostile connections, "
                    f"{served} clients served",
                    flush=True,
                )
            sleep(0.2)
    finally:
        storm.stop()
    return storm.tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak.listeners", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    print(f"{arguments.seconds:g} s, --seed {seed}", flush=True)
    log = Path(tempfile.gettempdir(), f"ctrlchan-listeners-{seed}.log")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctrlchan-listeners-")))
        stack.enter_context(logged_to(log))
        cluster = stack.enter_context(
            ctrlchan.EmbeddedCluster(
                1,
                more_listeners=dict.fromkeys(LISTENERS, "127.0.0.1:0"),
                configs=configs(folder),
            )
        )
        (broker,) = cluster.brokers
        ports = {one.listener: one.port for one in broker.endpoints}
        create_users(cluster.bootstrap_servers)
        token = create_token(ports["LOGINS"])
        contexts = [
            client_context(name, version) for name in (None, "alice") for version in ("TLSv1_2", "TLSv1_3")
        ]
        targets = [
            Target("PLAINTEXT", ports["PLAINTEXT"]),
            Target("TLS", ports["TLS"], contexts),
            Target("LOGINS", ports["LOGINS"], (), MECHANISMS),
            Target("BOTH", ports["BOTH"], contexts[:2], MECHANISMS),
        ]
        credentials = Credentials(USERS, token, lambda: time.time_ns() // 1_000_000)
        watched = [psutil.Process(pid) for pid in cluster.pids]
        served = sum(check_served(target, credentials) for target in targets)
        print(f"{served} clients are served before", flush=True)
        before: list[Figures] = []
        # One round before the figures are taken: what is imported and kept with first use is there.
        for number, seconds in enumerate((min(20.0, arguments.seconds / 5), arguments.seconds)):
            wait_for_rest(watched, before, more_descriptors=DESCRIPTORS)
            before = figures(watched)
            tried = round_of(seconds, targets, credentials, seed + number, watched)
        wait_for_rest(watched, before, more_descriptors=DESCRIPTORS)
        for then, now in zip(before, figures(watched), strict=True):
            print(f"{then}, then {now}")
            assert now.private_bytes < then.private_bytes + GROWTH, "memory has grown"
        assert sum(check_served(target, credentials) for target in targets) == served
    for kind, number in tried.most_common(40):
        print(f"{number:8,d}  {kind}")
    show_log(log)
    text = log.read_text(errors="replace")
    assert not [one for one in credentials.secrets() if one in text], f"a secret is in {log}"
    print(
        f"{sum(tried.values()):,} hostile connections: every client was served, nothing has grown", flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
