"""Two hosts joined by a slow link, as network namespaces of this machine.

In: settings of the link. Out: addresses, and the commands' prefixes that run a program on a host. It knows
nothing of Kafka: who runs where is the matter of ``bench/test_links.py``.
"""
