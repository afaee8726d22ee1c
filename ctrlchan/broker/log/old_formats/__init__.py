"""Records of formats 0 and 1 (magic 0 and 1), which clients before Kafka 0.11 write and read.

Comes in: what such a client has produced, or batches of format 2. Goes out: one batch of format 2
(``_up_conversion.pyx``), or entries of an older format (``_down_conversion.pyx``). ``_entries.pyx`` reads and
writes entries of both formats; ``wrappers.py`` has the codecs of entries that carry others. Handler threads
use this room, processors do not.
"""
