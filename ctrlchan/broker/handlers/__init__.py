"""The requests that a broker serves: one file for each API, or for APIs that are alike.

In: a frame and the broker's state. Out: a response. Nothing here opens a socket. ``table`` lists the APIs.
``_produce`` and ``_fetch`` answer on the processors, without the GIL; ``produce`` and ``fetch`` answer on
handler threads what those leave to Python.
"""
