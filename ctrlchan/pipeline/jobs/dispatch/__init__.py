"""``dispatch``: sends ready frames to their brokers from Spark's executors."""
