"""Messages for people: what the three control requests and their responses look like off the hot path.

In: bytes, or JSON as Kafka's JsonConverter writes it. Out: the other. ``schema`` holds Kafka's field tables,
``trees`` turns columns into nested dicts and back, ``json_form`` gives them Kafka's JSON form, ``json_lines``
is a line of ``ctrlchan decode`` and ``encode``. Every partition becomes a Python object here: nothing on its
way to a broker may pass through this room.
"""
