"""A storing broker's way to the controller, and to the configs in ZooKeeper.

In: requests that only the controller can answer (a client's, forwarded; the broker's own: new ISRs, producer
ids, automatic topics, its shutdown). Out: futures of answers. Knows the controller by its address alone:
ctrlchan's or a JVM's.
"""
