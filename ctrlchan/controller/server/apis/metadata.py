"""Metadata (3): the cluster as the controller knows it.

Topics are never created by a client that asks for them here; brokers create theirs themselves. A controller
that is not the active one closes the connection, and clients ask another broker.
"""

from __future__ import annotations

from ctrlchan.controller.server.apis.cluster_api import cluster_api
from ctrlchan.server.apis import metadata

__all__ = ["API"]

API = cluster_api(metadata.API)
