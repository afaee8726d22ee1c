"""What coordinators share: operations that wait, timers, and the fields of their records.

No file here opens a socket or a file, starts a thread, or reads a clock.
"""
