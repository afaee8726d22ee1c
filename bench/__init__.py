"""Benchmarks: they report, they never assert a time. ``bench/RESULTS.md`` says how to run them."""
