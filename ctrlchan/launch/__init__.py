"""Starts and ends brokers, with and without records: in this process, in child processes, as a command."""
