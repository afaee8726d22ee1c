"""Kafka's own integration tests, run against our brokers: ``make kafka-tests``.

    make kafka-tests                                                     # all classes of expected.toml
    make kafka-tests CLASSES="kafka.api.TransactionsTest"                # one class, or several
    make kafka-tests CLASSES="kafka.api.TransactionsTest#testFencingOnSend" JOBS=2

Kafka publishes its tests as jars: the Scala tests of the broker, those of Connect, MirrorMaker 2 and
Streams. They start brokers inside the JVM of the test. Here classes of ours stand before Kafka's on the
class path, and the tests stay as they are:

- ``harness/scala/KafkaServer.scala``: Kafka's broker in ZooKeeper mode. Each is a ``ctrlchan broker
  --config`` with the settings of the test, and takes part in elections of the controller, as Kafka's. The
  ZooKeeper is a real one, in the JVM of the test, so ``zkClient`` and ``adminZkClient`` of the
  tests are real, too. What a test reads of a broker's inside (who leads, topic ids, active producers) is
  answered from what the broker answers to clients, and its metrics (``BrokerMetrics.scala``) from what it
  serves on its metrics port; which quota holds for whom (``BrokerQuotas.scala``), Kafka's own quota
  managers say, with the quotas that the broker answers; its ``config`` follows ZooKeeper. Everything else
  inside throws, and the test counts as "cannot". A broker with security has one more listener, HARNESS, for
  these questions; who connects there is a super user. A JAAS file of the test is passed to the processes as
  ``java.security.auth.login.config``, the ``krb5.conf`` of a KDC that the test has started as KRB5_CONFIG:
  classes with GSSAPI need the package gssapi.
- ``harness/java/kafka/testkit/KafkaClusterTestKit.java``: the cluster of Connect's and MirrorMaker's tests,
  of such brokers. Streams' embedded cluster makes its brokers with ``KafkaServer`` by itself.
- ``harness/java/ctrlchan/``: starts processes; leaves out the invocations that need KRaft; writes the
  results; lets principal builders of the tests name the peers of our brokers (``Principals.java``, asked by
  ``principals.py``). ``authorizers.py`` has what stands in place of authorizers that tests have written. The
  users of a callback handler that checks passwords are those of a login module.
- ``openssl.cnf``: lets OpenSSL take the tests' certificates, which are signed with SHA-1.
- ``fork_server.py``: the parent of all brokers. It has imported everything before it forks.

``build.py`` fetches the jars and compiles the harness, ``runs.py`` runs a class in a JVM of its own,
``table.py`` prints what came out: methods run and passed of each class. A method has one outcome: the worst
of its invocations. A method that does not pass as it should is repeated once in a new JVM, as Kafka's own
build does, and is counted under "again" if it passes then. A JVM that says nothing for long is killed, with
what its threads did in its output.

``expected.toml`` says for each class and method: runs, cannot (it looks inside a broker; not run), fails
(with the reason). The exit status is 0 when the outcome equals the list; a method that passes, but is
listed as failing, is a difference, too. ``python -m tests.kafka_tests --propose CLASS`` prints a class as
the list would have it; ``--cannot`` runs the methods that cannot run, too. ``build/kafka-tests-runs/`` has
the table (``report``) and for each class what it said, ``failures`` and logs of brokers (``CLASS/`` and, of
what was repeated, ``CLASS.again/``).
"""
