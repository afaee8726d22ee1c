"""The log of one partition: batches that are checked, segments on disk, the state of producers.

In: the records of a Produce request or of a leader's Fetch response. Out: bytes in Kafka's own directory
layout, and ranges of files for Fetch. Code that runs once per request is Cython without the GIL. This
package knows nothing of sockets, requests and topics.
"""
