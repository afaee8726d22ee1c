"""Peers that misbehave in handshakes of TLS and in SASL, and what must hold meanwhile and afterwards.

In: the listeners of a server (``Target``) and the credentials of its users. Out: counts of what was tried,
and each guarantee that was broken. ``handshakes.py`` has the peers of TLS, ``logins.py`` those of SASL,
``storm.py`` the threads. ``python -m tests.soak.listeners`` lets them loose on a broker;
``tests/unit/server/test_hostile_peers.py`` does so for some seconds, on a server of its own process.
"""
