"""``load``: the workers of a load (``ctrlchan.loads``) as tasks of Spark.

In: a ``Load``. Out: the sum of the workers' results. All tasks start together, or none.
"""
