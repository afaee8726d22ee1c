"""The server's side of SASL, without sockets: who is the peer of a connection?

In: frames, settings of a listener, users. Out: answers, the name of the peer, how long his session lasts.
Nothing here knows processors, other than ``authentication.py``, which brings both together.
"""
