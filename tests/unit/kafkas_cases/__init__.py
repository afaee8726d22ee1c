"""Lists of Kafka 3.9's unit cases, and the tests here that say the same.

A list is a TOML file about one area. Its table ``methods`` has the number of test methods of each class of
Kafka's. Each class has a table with all of them: the tests, as ``file::function`` below ``tests``, or a text
``left out: …`` that says why the case has none. ``test_kafkas_cases.py`` checks all lists.
"""
