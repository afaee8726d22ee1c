"""Makes a ``ClusterState`` from ZooKeeper, from describe text, or from a generator."""
