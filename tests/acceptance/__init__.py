"""Real Kafka 3.9.1 brokers driven by this package as their controller.

``znodes`` writes ZooKeeper as a controller does and ``zk_controller`` joins it with the package's channel
and batch; together they are a controller for tests, which decides nothing by itself. All tests of a session
share one rig and one controller (``conftest``), so each has topics of its own and leaves the cluster whole.
"""

import pytest

# Its checks stand outside a test file; without this their failures would not show the values.
pytest.register_assert_rewrite("tests.acceptance.exchanges")
