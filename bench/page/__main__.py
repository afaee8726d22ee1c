"""Makes the page and the tables of ``bench/RESULTS.md`` again, from ``bench/results.json``.

Command: ``python -m bench.page``.
"""

from bench.report import write

if __name__ == "__main__":
    write([])
