"""Reads ``bench/results.json`` into measures: what was measured, all samples of each side, and the goals.

In: the raw results. Out: measures, their ratios, slopes over sizes, and which goals are met. This room knows
nothing of pages and documents.
"""
