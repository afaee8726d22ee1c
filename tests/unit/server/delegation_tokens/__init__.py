"""Delegation tokens: nodes in ZooKeeper, who may change and see them, and how their owners log in."""
