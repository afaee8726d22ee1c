"""Real Kafka 3.9.1 brokers whose controller is ctrlchan's KafkaController.

``cluster`` starts ZooKeeper, controllers and brokers; ``load`` writes messages all along and compares those
that were acknowledged with those that can be read; ``nodes`` reads what ZooKeeper has, ``agreement`` compares
that with what every broker has; ``tools`` runs Kafka's command-line tools in one JVM.
"""

import pytest

# Their checks stand outside a test file; without this their failures would not show the values.
pytest.register_assert_rewrite("tests.acceptance.controller.agreement", "tests.acceptance.controller.load")
