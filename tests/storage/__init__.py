"""Real storage for tests: an S3 server that can fail, and a small HDFS."""
