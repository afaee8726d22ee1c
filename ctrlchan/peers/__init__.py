"""Connections from one node to another: framing, versions of APIs, requests and their answers.

A broker's way to the controller uses them: ctrlchan's or a JVM's, known by its address alone.
"""
