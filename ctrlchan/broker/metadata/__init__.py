"""The state of one embedded broker: its metadata cache, the replicas that it hosts, its configs."""
