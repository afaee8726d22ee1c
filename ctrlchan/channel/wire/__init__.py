"""What the parent and the sender processes both use: pipe records, the poller, settings, credentials.

This room imports nothing else of ours but ``security``, ``errors`` and ``protocol``.
"""
