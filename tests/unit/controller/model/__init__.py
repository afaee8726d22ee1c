"""A model of a whole cluster: real ZooKeeper, real controllers, brokers and a channel that a test steps."""
