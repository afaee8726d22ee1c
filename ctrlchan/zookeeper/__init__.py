"""Kafka's nodes in ZooKeeper: their paths, their JSON forms, and reading them.

``paths`` and ``nodes`` are pure functions and need no ZooKeeper client; a path or a JSON form of Kafka's is
written nowhere else. ``client`` connects with kazoo and reads many nodes at once. This room knows nothing of
cluster states: what its users make of the fields is theirs.
"""
