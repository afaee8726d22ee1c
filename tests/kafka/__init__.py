"""Real Apache Kafka for the tests: its jars from Maven Central, and a rig of ZooKeeper and brokers.

``jars`` fetches the class path once for each checkout and compiles Java helpers against it; ``rig`` starts
and ends ZooKeeper 3.8.4 and Kafka 3.9.1 brokers in ZooKeeper mode; ``fixtures`` makes both pytest fixtures.
Nothing here imports the package under test.
"""
