"""Compares the codec with Kafka's own jar, with golden bytes and with a slow readable codec."""
