"""What jobs share on Spark: Java, errors, Ctrl-C, progress, datasets on disk, lines of texts, packed rows.

In: paths and a Spark session. Out: DataFrames with checked columns. This room imports no job.
"""
