"""Benchmarks. They report times and never assert one; ``bench/RESULTS.md`` describes how to run them."""
