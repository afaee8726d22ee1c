"""Requests that a real broker and ours must answer alike, and the comparison of their answers.

In: two brokers. Out: what each request was answered with, byte for byte but for clocks and ids. One file has
the requests of one subject; ``recorder.py`` sends and remembers them; ``messages.py`` reads and writes any
message.
"""
