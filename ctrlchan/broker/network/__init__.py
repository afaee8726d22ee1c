"""The servers of embedded brokers and of the controller: frames in, responses out.

``server`` runs in an event loop, ``socket_server`` on threads without the GIL.
"""
