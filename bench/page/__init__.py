"""Makes the page of all results, ``docs/benchmarks.html``: one file that loads nothing else.

In: measures. Out: HTML with a chart and a table for each of them. Command: ``python -m bench.page``.
"""
