"""The jobs of the pipeline: one room each, named by its command.

A room has ``config.py`` (its settings) and ``job.py`` (its function of a Spark session). ``frames`` takes the
steps of ``diff``; ``explain`` and ``monitor`` use ``merge_logs`` and ``report``. No job imports the session.
"""
