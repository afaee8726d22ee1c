"""For users' tests: the pytest plugin of ``ctrlchan[testing]``, with the fixture ``kafka_cluster``."""
