"""Starts and ends embedded brokers: in this process, in child processes, as a command."""
