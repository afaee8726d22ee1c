"""Makes the authorizer that ``authorizer.class.name`` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.config import table
from ctrlchan.config.classes import instance_of
from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.settings import ZooKeeperSettings

__all__ = ["make_authorizer"]

#: The class of Kafka that is served here. Before 2.4 it had the other name.
_ACL_AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def make_authorizer(
    configs: Mapping[str, str], zookeeper: ZooKeeperSettings | None, name: str
) -> Authorizer | None:
    """Return the authorizer of a broker or controller, configured; None if none is named.

    ``zookeeper``: of the broker, or None if it has none. ``name``: for logs. Raises ConfigError,
    ZooKeeperError.
    """
    class_name = table.AUTHORIZER_CLASS_NAME.of(configs).strip()
    if not class_name:
        return None
    authorizer: Authorizer
    if class_name in _ACL_AUTHORIZERS:
        if zookeeper is None:
            raise ConfigError(f"{table.AUTHORIZER_CLASS_NAME}: {class_name} needs ZooKeeper")
        # Imported here: no other broker needs it.
        from ctrlchan.authorizer.acl_authorizer import AclAuthorizer

        authorizer = AclAuthorizer(zookeeper, name)
    else:
        authorizer = instance_of(
            table.AUTHORIZER_CLASS_NAME.name,
            class_name,
            Authorizer,  # type: ignore[type-abstract]
            f"{_ACL_AUTHORIZERS[0]} is Kafka's own, ",
        )
    authorizer.configure(configs)
    return authorizer
