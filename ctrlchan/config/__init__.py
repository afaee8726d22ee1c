"""Kafka's settings of brokers and topics: names, types, defaults and ranges, stated once.

``values`` parses a text as Kafka parses it; ``definitions`` lists the settings that DescribeConfigs shows;
``parsing`` has their ranges and checks them; ``settings`` names those that a broker acts on; ``changes``
applies what AlterConfigs asks for. Brokers, the controller and the commands use them.
"""
