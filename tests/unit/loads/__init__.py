"""Tests of ``ctrlchan bench``: loads on an embedded cluster, exact counts, the guard, histograms."""
