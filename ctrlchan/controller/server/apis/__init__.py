"""The APIs of a controller: one file for each request, listed in ``table``. kio has the messages."""
