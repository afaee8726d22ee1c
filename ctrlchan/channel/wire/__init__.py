"""What the parent and the sender processes both use: pipe records, the poller, settings, TLS contexts.

This room imports nothing else of ours but ``errors`` and ``protocol``.
"""
