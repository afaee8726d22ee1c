"""Instruction counts of what must stay fast, beside a committed baseline (``baseline.json``).

A count is the same on a busy machine and on an idle one, so CI can refuse a commit that makes a request more
expensive; ``bench`` has the times. Things to measure → ``callgrind`` → counts by function → ``comparison``.
``things/`` has a file for each measured thing; each runs in a process of its own (``child.py``).

Command: ``python -m bench.instructions`` (``make instructions``). What the counts depend on:
``environment.py``; what they found: ``bench/notes/instructions.md``.
"""
