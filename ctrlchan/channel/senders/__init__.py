"""What runs in a sender process, and the fork server that starts these processes.

In: commands through a pipe, frames in shared memory. Out: bytes to brokers, reports through a pipe. Nothing
here decides the content of a request or who gets it. There may be one process for each broker, so nothing
here imports NumPy or anything else that is large.

``sender`` is the event loop over ``broker_connection``s. Each of these composes a ``protocol`` (with its C
part ``_request``), which has neither socket nor clock, with a connection of ``tcp`` or ``tls`` and, until it
is ready, a ``connection_setup`` (with the handshake of ``ctrlchan.security``). ``_fast_path`` does the steps
of nearly every request in C. ``fork_server`` starts the processes.
"""
