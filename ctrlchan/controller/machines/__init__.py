"""The controller's columns of the cluster, the state machines over them, and the deletion of topics.

In: rows and the states that they shall have. Out: nodes in ZooKeeper, requests in a batch. These are the
parts of ``ControllerCore``, which they do not know.
"""
