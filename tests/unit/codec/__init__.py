"""The codec's public interface, piece by piece (whole messages: tests/conformance)."""
