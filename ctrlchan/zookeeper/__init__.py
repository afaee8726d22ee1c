"""Kafka's nodes in ZooKeeper: their paths, their JSON forms, and one client that reads and writes them.

``cluster`` is what a controller uses: values and columns in, values and columns out; ``session`` is the
connection of controller, broker and importer. A path or a JSON form of Kafka's is written in ``paths`` and
``nodes`` (pure functions) and in ``_states`` (the same for many partitions at once), and nowhere else in the
package. This room knows nothing of cluster states: what its users make of the fields is theirs.
"""
