"""What runs in a sender process, and the process that they all come from.

In: commands through a pipe, frames in shared memory. Out: bytes to brokers, reports through a pipe. Nothing
here decides what a request says or who gets it, and nothing here imports NumPy or what is not needed: there
may be a process for each broker. ``link`` (one broker's conversation) and ``handshake`` never touch a socket,
``connection`` and ``tls`` do, ``sender`` is the event loop around them, ``fork_server`` the parent of them
all.
"""
