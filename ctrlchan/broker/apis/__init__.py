"""The requests that the embedded broker serves: one file for each API, or for APIs that are alike.

In: a frame and the broker's state. Out: a response. Nothing here opens a socket. ``table`` lists the APIs,
``request_handler`` finds the API of a frame in a table.
"""
