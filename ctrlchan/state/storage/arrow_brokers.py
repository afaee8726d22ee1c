"""Arrow tables of brokers <-> columns.

``id``, ``epoch``, ``rack`` (may be null) and ``endpoints``, a list of structs of ``listener``,
``security_protocol`` (its name), ``host`` and ``port``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ctrlchan._codec import Brokers
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, brokers_from, brokers_list
from ctrlchan.state.storage.arrow_columns import columns_of, is_text, require_ints, wrong_type
from ctrlchan.state.storage.problems import Source, always
from ctrlchan.state.storage.schemas import BROKERS

__all__ = ["brokers_from_arrow", "brokers_to_arrow"]


def brokers_from_arrow(table: pa.Table | pa.RecordBatch, source: Source) -> Brokers:
    """Return the brokers in the order of the table. Raises the source's error, naming rows and reasons."""
    columns = columns_of(table, BROKERS.names, source)
    for name in ("id", "epoch"):
        require_ints(columns[name], name, source)
    rack = columns["rack"].type
    if not (is_text(rack) or pa.types.is_null(rack)):
        raise wrong_type(source, "rack", rack, "string")
    _require_endpoints(columns["endpoints"].type, source)
    problems = source.problems()
    brokers: dict[int, Broker] = {}
    for row, entry in enumerate(zip(*(column.to_pylist() for column in columns.values()), strict=True)):
        try:
            broker = _broker(*entry)
            if broker.id in brokers:
                raise InvalidStateError(f"broker {broker.id} is listed twice")
            brokers[broker.id] = broker
        except InvalidStateError as error:
            problems.add(np.array([row]), always(str(error)))
    problems.raise_if_any()
    return brokers_from(brokers.values())


def brokers_to_arrow(brokers: Brokers) -> pa.Table:
    """Return a table of ``BROKERS``."""
    rows = [
        {
            "id": broker.id,
            "epoch": broker.epoch,
            "rack": broker.rack,
            "endpoints": [
                {
                    "listener": endpoint.listener,
                    "security_protocol": endpoint.security_protocol.name,
                    "host": endpoint.host,
                    "port": endpoint.port,
                }
                for endpoint in broker.endpoints
            ],
        }
        for broker in brokers_list(brokers)
    ]
    return pa.Table.from_pylist(rows, schema=BROKERS)


def _require_endpoints(kind: pa.DataType, source: Source) -> None:
    fields: dict[str, pa.DataType] = {}
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        endpoint = kind.value_type
        fields = {endpoint.field(i).name: endpoint.field(i).type for i in range(endpoint.num_fields)}
    right = {
        field.name: is_text if is_text(field.type) else pa.types.is_integer
        for field in BROKERS.field("endpoints").type.value_type
    }
    if not all(name in fields and accepts(fields[name]) for name, accepts in right.items()):
        raise wrong_type(source, "endpoints", kind, str(BROKERS.field("endpoints").type))


def _broker(
    broker_id: int | None, epoch: int | None, rack: str | None, endpoints: list[dict[str, Any] | None] | None
) -> Broker:
    if broker_id is None or epoch is None or endpoints is None:
        name = "id" if broker_id is None else "epoch" if epoch is None else "endpoints"
        raise InvalidStateError(f"{name} is null")
    made = []
    for endpoint in endpoints:
        if endpoint is None or any(value is None for value in endpoint.values()):
            raise InvalidStateError(f"broker {broker_id}: an endpoint has a null in it")
        protocol = SecurityProtocol.of(endpoint["security_protocol"])
        made.append(Endpoint(endpoint["listener"], protocol, endpoint["host"], endpoint["port"]))
    broker = Broker(broker_id, epoch, tuple(made), rack)
    # Checked here, where the row of the broker is known.
    brokers_from([broker])
    return broker
