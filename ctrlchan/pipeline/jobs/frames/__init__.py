"""``frames``: a snapshot or a diff -> the frames that brokers receive.

In: rows of partitions. Out: rows of frames, in the order of each broker. This room sends nothing.
"""
