"""The control plane of a ZooKeeper-mode Apache Kafka cluster."""
