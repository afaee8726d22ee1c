"""Serves Kafka's requests, for brokers and for the controller: frames in, responses out.

``socket_server`` runs processors on threads without the GIL (``_processor``), with ``handler_pool`` for what
needs Python. ``request_handler`` finds the ``Api`` of a frame and encodes its reply; ``kio_messages`` decodes
and encodes what is off the hot path. ``apis`` has what brokers and the controller answer alike.
"""
