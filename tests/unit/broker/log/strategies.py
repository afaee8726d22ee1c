"""Random records and rules for the checks of an append."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.unit.broker.log.batches import PlainRecord, PlainRules

NOW = 5000

small_bytes = st.none() | st.binary(max_size=20)
timestamps = st.sampled_from([-1, 0, 1, 999, 1000, 5000, 2**40, -(2**40), 2**63 - 1, -(2**63)])
records = st.lists(
    st.builds(
        PlainRecord,
        st.integers(-2, 3) | st.integers(-(2**31), 2**31 - 1),
        st.integers(-10, 10_000) | timestamps,
        small_bytes,
        small_bytes,
        st.lists(st.tuples(small_bytes, small_bytes), max_size=3).map(tuple),
        st.integers(0, 255),
    ),
    max_size=4,
)
rules = st.builds(
    PlainRules,
    st.sampled_from([NOW, 0, 2**63 - 1]),
    st.sampled_from([2**63 - 1, 0, 1000]),
    st.sampled_from([2**63 - 1, 0, 1000]),
    st.sampled_from([1048588, 61, 90]),
    st.sampled_from([2**31 - 1, 61, 90]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
header_fields = st.fixed_dictionaries(
    {},
    optional={
        "count": st.sampled_from([0, 1, 2, 4, -1, 2**31 - 1, 1 - 2**31]),
        "base_offset": st.sampled_from([0, 1, -1, 2**63 - 1]),
        "length": st.sampled_from([-1, 0, 13, 14, 48, 49, 50, 2**31 - 1, -(2**31)]),
        "magic": st.integers(-1, 3),
        "crc": st.just(1),
        "attributes": st.sampled_from([0, 5, 6, 7, 8, 0x20, 0x10]),
        "last_offset_delta": st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1, -(2**31)]),
        "max_timestamp": timestamps,
        "producer_id": st.sampled_from([-2, -1, 0, 2**63 - 1]),
        "base_sequence": st.sampled_from([-2, -1, 0]),
    },
)
