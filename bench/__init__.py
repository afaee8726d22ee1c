"""Benchmarks. They report times and never assert one; ``bench/RESULTS.md`` says how to run them."""
