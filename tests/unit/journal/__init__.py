"""The journal: rows to files and back, and a real channel that writes one."""
