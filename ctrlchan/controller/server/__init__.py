"""The server of a controller: what brokers and clients ask their controller.

In: frames on PLAINTEXT, TLS and SASL listeners. Out: answers, which may wait for the effect of a request.
Runs on the threads of ``ctrlchan.server``. Requests that change the cluster run on the event loop's thread
(``EventLoop.call``); only Metadata and DescribeCluster read the state themselves, under its lock. Knows
nothing of ZooKeeper.
"""
