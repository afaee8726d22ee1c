"""Starts, watches and replaces the sender processes. Runs in the parent process."""
