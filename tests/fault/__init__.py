"""A channel under brokers, processes and memory that fail."""
