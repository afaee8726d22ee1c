"""The embedded broker: what it answers, what it then holds, and what it survives."""
