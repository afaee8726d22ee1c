"""Tests of the codec's public interface in parts; tests/conformance tests whole messages."""
