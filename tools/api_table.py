"""Writes docs/api/apis.md: Kafka's API keys, and who serves which versions to whom.

python -m tools.api_table

What Kafka announces is read from the tables of messages in its jar ``kafka-clients``, which Maven fetches.
The rest is read from the tables of the APIs of a broker and of the controller.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.broker.handlers import consumer_groups, forwarded, of_controllers
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.controller.server.apis.table import served_apis
from ctrlchan.server.access import Needs
from ctrlchan.server.api import Api
from tests.kafka.jars import kafka_jars

PAGE: Final = Path(__file__).parents[1] / "docs" / "api" / "apis.md"
_HEAD: Final = """# API keys

The API keys of Kafka 3.9.1, and the versions that are served. *Kafka*: what a broker in ZooKeeper mode
announces. *Broker*: a broker that stores records, with a ZooKeeper and a controller. *Controller*: the
listeners of `KafkaController`. *Listeners*: those that take the request; "of brokers": only the one on which
brokers ask the controller. *Access*: operations and types of resources that an authorizer is asked about, if
there is one ([ACLs](../security.md#acls)); in **bold**: without it the whole request is refused. KRaft: no
broker in ZooKeeper mode has this key. `python -m tools.api_table` writes this page.

| key | API | Kafka | broker | controller | listeners | access | notes |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
_NONE: Final = "–"

#: The APIs of the broker and of the controller that the page is about, by key.
BROKER: Final[Mapping[int, Api[Any]]] = storing_apis(forwards=True, alters_configs=True)
CONTROLLER: Final[Mapping[int, Api[Any]]] = served_apis()

#: What is said of the APIs of a table.
_NOTES: Final[tuple[tuple[tuple[Api[Any], ...], str], ...]] = (
    (forwarded.APIS, "a broker forwards it to the controller"),
    (of_controllers.APIS, "only the active controller answers"),
    (consumer_groups.APIS, "UNSUPPORTED_VERSION, as of Kafka without the new coordinator"),
)


def kafka_versions(jar: Path) -> dict[int, tuple[str, range | None]]:
    """Return Kafka's name of each API key, and the versions that a broker in ZooKeeper mode announces.

    ``jar``: kafka-clients. No versions: no such broker has the API.
    """
    found = {}
    with zipfile.ZipFile(jar) as files:
        for path in files.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", path):
                # Its files are JSON with comments.
                text = re.sub(r"^\s*//.*$", "", files.read(path).decode(), flags=re.MULTILINE)
                table = json.loads(text)
                found[table["apiKey"]] = table["name"].removesuffix("Request"), _announced(table)
    return found


def _announced(table: Mapping[str, Any]) -> range | None:
    """``ApiVersionsResponse.filterApis``: without a last version that is not stable."""
    if "zkBroker" not in table.get("listeners", ()) or table["validVersions"] == "none":
        return None
    low, _, high = table["validVersions"].partition("-")
    return range(int(low), int(high or low) + 1 - bool(table.get("latestVersionUnstable")))


def page(jar: Path) -> str:
    """Return the text of the page. ``jar``: kafka-clients of Kafka 3.9.1."""
    rows = []
    for key, (name, versions) in sorted(kafka_versions(jar).items()):
        served = [api for api in (BROKER.get(key), CONTROLLER.get(key)) if api is not None]
        cells = [
            str(key),
            name,
            "KRaft" if versions is None else _range(versions),
            _versions(BROKER.get(key)),
            _versions(CONTROLLER.get(key)),
            _listeners(served),
            _access(BROKER.get(key), CONTROLLER.get(key)),
            "; ".join(_notes(served)) or _NONE,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return _HEAD + "\n".join(rows) + "\n"


def _range(versions: range) -> str:
    if not versions:
        return _NONE
    low, high = versions[0], versions[-1]
    return str(low) if low == high else f"{low}–{high}"


def _versions(api: Api[Any] | None) -> str:
    return _NONE if api is None else _range(range(api.lowest, api.highest + 1))


def _listeners(served: Collection[Api[Any]]) -> str:
    if not served:
        return _NONE
    return "of brokers" if any(api.only_of_brokers for api in served) else "all"


def _access(broker: Api[Any] | None, controller: Api[Any] | None) -> str:
    broker_asks, controller_asks = (
        [] if api is None or api.needs is None else _needs(api.needs) for api in (broker, controller)
    )
    if broker is None or controller is None:
        return ", ".join(broker_asks or controller_asks) or _NONE
    both = [one for one in broker_asks if one in controller_asks]
    texts = [", ".join(both)]
    for who, asked in (("broker", broker_asks), ("controller", controller_asks)):
        if own := [one for one in asked if one not in both]:
            texts.append(f"{who}{' also' if both else ''}: {', '.join(own)}")
    return "; ".join(filter(None, texts)) or _NONE


def _needs(needs: Needs) -> list[str]:
    asked = [f"{_camel(one)} {_camel(kind)}" for one, kind in sorted(needs.asked)]
    if needs.cluster is not None:
        asked.insert(0, f"**{_camel(needs.cluster)} {_camel(ResourceType.CLUSTER)}**")
    return asked


def _camel(one: Operation | ResourceType) -> str:
    """Return Kafka's name of an operation or of a type: ClusterAction."""
    return "".join(word.capitalize() for word in one.name.split("_"))


def _notes(served: Iterable[Api[Any]]) -> list[str]:
    served = list(served)
    found = [note for apis, note in _NOTES if any(api in apis for api in served)]
    if any(api.answers_any_version for api in served):
        found.append("other versions are answered in version 0")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(next(kafka_jars().glob("kafka-clients-*.jar"))))
