"""Converts the three control requests and their responses between wire bytes and Kafka's JSON form.

``schema`` has Kafka's tables of fields, ``trees`` turns columns into nested dicts and back, ``json_form``
gives them the form of Kafka's JsonConverter, ``json_lines`` converts lines of ``ctrlchan decode`` and
``encode``.
Every partition becomes a Python object here, so requests to brokers never use this package.
"""
