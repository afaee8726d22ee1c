"""Delegation tokens (KIP-48, KIP-373): short-lived passwords that users make for programs.

In: who asks for what, and the nodes in ZooKeeper, which JVM brokers and ours share. Out: tokens, and what a
listener needs to let the owner of a token in. Nothing here knows a request or a connection.
"""
