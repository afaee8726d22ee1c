"""Kafka's settings of brokers and topics: names, types, defaults and ranges, stated once.

``table`` has a row for each setting; all other files work on rows. ``setting`` is a row, ``values`` parses a
text as Kafka parses it, ``checks`` has what no range describes. ``typed`` makes settings of one part from
rows, ``described`` what DescribeConfigs shows, ``parsing`` checks what requests ask for, ``changes`` applies
it, ``names`` tells names without effect. Brokers, the controller and the commands use them.
"""
