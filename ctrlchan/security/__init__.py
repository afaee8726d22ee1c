"""What both sides of a secured connection need, without sockets and threads.

In: settings (TLS files, SASL users, texts of JAAS), bytes of a handshake. Out: TLS contexts, bytes to send.
The channel's senders, peers, listeners and ZooKeeper's sessions use it. Modules that senders import are
small, and load what is large only where it is used.
"""
