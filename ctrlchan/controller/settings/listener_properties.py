"""The keys of ``server.properties`` that secure a listener of a controller."""

from __future__ import annotations

from typing import Final

from ctrlchan.channel.properties_file import LOGIN_MODULES, ListenerProperties
from ctrlchan.config import table
from ctrlchan.controller.settings.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol

__all__ = ["listener_security"]

_USER: Final = "user_"


def listener_security(properties: ListenerProperties, protocol: SecurityProtocol) -> ListenerSecurity:
    """Return the security of a listener. Raises ConfigError with file, line and key.

    Keys: ``ssl.*``, ``ssl.client.auth``, ``sasl.enabled.mechanisms``, and the users of PLAIN
    (``plain.sasl.jaas.config`` with ``user_<name>="<password>"``), each with the listener's prefix first.
    """
    tls = properties.tls() if protocol.name.endswith("SSL") else None
    mechanisms: tuple[str, ...] = ()
    users: dict[str, str] = {}
    if protocol.name.startswith("SASL"):
        setting = table.SASL_ENABLED_MECHANISMS
        text = properties.value(setting.name)
        mechanisms = tuple(filter(None, setting.value if text is None else setting.parse(text)))
        unknown = [name for name in mechanisms if name not in LOGIN_MODULES]
        if unknown:
            properties.refuse(setting.name, f"{unknown[0]} is not {', '.join(LOGIN_MODULES)}")
        found = properties.jaas_options("PLAIN") if "PLAIN" in mechanisms else None
        if found is not None:
            users = {
                name.removeprefix(_USER): password
                for name, password in found[1].items()
                if name.startswith(_USER)
            }
    key = table.SSL_CLIENT_AUTH.name
    client_auth = (properties.value(key) if tls is not None else None) or ClientAuth.NONE.value
    if client_auth not in list(ClientAuth):
        properties.refuse(key, f"{client_auth!r} is not {', '.join(ClientAuth)}")
    try:
        return ListenerSecurity(
            tls=tls, client_auth=ClientAuth(client_auth), mechanisms=mechanisms, users=users
        )
    except ConfigError as problem:
        properties.refuse(table.SASL_ENABLED_MECHANISMS.name, str(problem))
