"""The broker without records, for tests of channels and controllers: its state and its life cycle.

It answers what a controller sends and what clients ask of the metadata. Its replicas have no logs.
"""
