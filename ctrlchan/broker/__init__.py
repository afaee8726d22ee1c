"""The broker that stores records: answers controllers and clients like a Kafka 3.9 broker in ZooKeeper mode.

In: frames on a socket. Out: responses, down to the order of partitions in a response to a controller, and a
state that tests can inspect. It has the threads of Kafka's broker, keeps records in Kafka's own files,
follows leaders, coordinates groups, and asks the controller. Ours or Kafka's own controller may drive it.

It is stricter than Kafka with frames that no controller sends: bytes after the end of a control request,
names that are not UTF-8 and, in the clients' requests that kio reads, tagged fields that kio does not have
close the connection.

Rooms: ``server`` builds the parts and stops them. ``handlers`` answers requests, with ``coordinator``
(groups), ``replica`` (partitions, followers, ISR changes), ``metadata`` (what controllers have sent) and
``log`` (records on disk). ``config`` has the settings of the parts, ``metrics`` their counters.
``ctrlchan.launch`` starts the processes; ``ctrlchan.metadata_broker`` is the broker without records.
"""
