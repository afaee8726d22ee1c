"""``diff``: two snapshots -> the rows of the control requests that lead from one to the other.

In: two snapshots of one cluster. Out: rows and receivers. This room knows nothing of versions and bytes.
"""
