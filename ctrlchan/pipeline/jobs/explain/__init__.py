"""The story of one partition, told from merged logs.

In: the entries that speak of it, in the order of time, and what is known of the logs as a whole. Out: a
``Story``: its epochs, who was told, who applied, what is missing. Plain Python, no Spark but in ``job``.
"""
