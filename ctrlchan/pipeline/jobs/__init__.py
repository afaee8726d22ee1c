"""The jobs of ``ctrlchan pipeline``: one room for each, named by its command."""
