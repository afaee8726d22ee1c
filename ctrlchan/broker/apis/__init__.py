"""The requests that the embedded broker serves: one file for each API key.

In: a parsed request and the broker's metadata. Out: a response. Nothing here opens a socket.
"""
