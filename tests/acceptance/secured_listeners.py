"""Listeners with TLS and SASL on the brokers of an EmbeddedCluster, and their users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import confluent_kafka
import confluent_kafka.admin

from ctrlchan import EmbeddedCluster
from tests.kafka.waiting import wait_until

__all__ = ["CLASSES", "MODULES", "ScramUser", "add_scram_users", "listener_configs"]

#: Its types do not export what stands in its documentation.
_ADMIN: Final[Any] = confluent_kafka.admin
CLASSES: Final = "org.apache.kafka.common.security"
#: Mechanism -> login module.
MODULES: Final = {
    "PLAIN": f"{CLASSES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{CLASSES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{CLASSES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{CLASSES}.oauthbearer.OAuthBearerLoginModule",
}
_ITERATIONS: Final = 4096


class ScramUser(NamedTuple):
    """A user who logs in by one SCRAM mechanism."""

    name: str
    password: str
    mechanism: str


def listener_configs(
    protocols: Mapping[str, str], plain_users: Mapping[str, str], mechanisms: Iterable[str] = MODULES
) -> dict[str, str | int | float]:
    """Return the settings of more listeners, by their names. ``plain_users``: passwords for PLAIN.

    Stores of TLS and the authorizer are the caller's.
    """
    mapped = {"PLAINTEXT": "PLAINTEXT", **protocols}
    found: dict[str, str | int | float] = {
        "listener.security.protocol.map": ",".join(f"{name}:{mapped[name]}" for name in mapped),
        "sasl.enabled.mechanisms": ",".join(mechanisms),
    }
    users = " ".join(f'user_{name}="{password}"' for name, password in plain_users.items())
    for listener, protocol in protocols.items():
        if protocol.startswith("SASL"):
            for mechanism in mechanisms:
                options = users if mechanism == "PLAIN" else ""
                key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
                found[key] = f"{MODULES[mechanism]} required {options};"
    return found


def add_scram_users(cluster: EmbeddedCluster, users: Iterable[ScramUser], listener: str) -> None:
    """Add the users, and wait until each broker lets them in at ``listener``, which has no TLS."""
    users = list(users)
    admin = _ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for user in users:
        mechanism = getattr(_ADMIN.ScramMechanism, user.mechanism.replace("-", "_"))
        change = _ADMIN.UserScramCredentialUpsertion(
            user.name, _ADMIN.ScramCredentialInfo(mechanism, _ITERATIONS), user.password.encode()
        )
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)
    for server in cluster.bootstrap_servers_of(listener).split(","):
        for user in users:
            settings = {"bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "log_level": 0}
            settings |= {"sasl.mechanism": user.mechanism, "sasl.username": user.name}
            settings["sasl.password"] = user.password

            def is_let_in(settings: dict[str, Any] = settings) -> bool:
                try:
                    return bool(_ADMIN.AdminClient(settings).list_topics(timeout=2).brokers)
                except confluent_kafka.KafkaException:
                    return False

            wait_until(is_let_in, what=f"{server} knows {user.name} by {user.mechanism}")
