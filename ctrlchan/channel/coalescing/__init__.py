"""Requests made of other requests: merged, split, or said in another version.

In: requests that wait for a broker, as columns. Out: fewer, smaller or older ones that leave the broker in
the same state. ``bodies``, ``merge``, ``split`` and ``transcode`` are functions of columns and know no queue;
``merger``, ``rewriter`` and ``adapter`` do for the queues what was asked of them, once for all brokers that
need the same; ``joint`` are requests that stand for others, or are a part of one.
"""
