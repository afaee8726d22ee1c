"""DescribeCluster (60): the brokers, this controller among them, as the controller knows them."""

from __future__ import annotations

from ctrlchan.controller.server.apis.cluster_api import cluster_api
from ctrlchan.server.apis import describe_cluster

__all__ = ["API"]

API = cluster_api(describe_cluster.API)
