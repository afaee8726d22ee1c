"""Seeds that have failed once, and why. Each is a test from then on (`test_simulation.py`).

A change of the simulator's choices makes another history of a seed. So what a seed has found in the product
has a test of its own, too, beside the product's other tests.
"""

from __future__ import annotations

from typing import Final

FAILED_ONCE: Final[dict[int, str]] = {
    5: "simulator: a Fetch does not wait for a partition that the leader did not know when it arrived",
    98: "simulator: the log had another time than the records, and forgot their producer",
    348: "simulator: no broker heard that another one was live again, so no ISR grew",
    1367: "simulator: a broker that ended in order knows the last batch of a producer alone, as in Kafka",
    6178: "simulator: a fetcher whose pause was over to a rounding error sent empty requests for ever",
    1712: "simulator: an answer of a handler thread did not count as something to do",
}
