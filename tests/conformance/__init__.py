"""The codec against its authorities: Kafka's own jar, golden bytes, a slow readable twin, and garbage."""
