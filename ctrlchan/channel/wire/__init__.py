"""What the parent and the sender processes both use: pipe records, the poller, security settings.

This room imports nothing else of ours but ``errors`` and ``protocol``.
"""
