"""The controller channel: its parts alone, and the whole against scripted brokers."""
