"""Connections from one node to another: framing, versions of APIs, requests and their answers.

In: addresses, bodies of requests. Out: their answers. A broker uses them to ask the controller and other
brokers: ctrlchan's or JVMs, known by their addresses alone.
"""
