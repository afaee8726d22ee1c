"""What one more costs: controllers and brokers at growing sizes, ours beside Kafka's, until a side gives up.

Each question has a file: it asks one side at one size. ``record`` keeps the samples, by question, side and
size; ``suite`` lists the questions; ``__main__`` runs them in turns and within a time. ``crowd`` has
thousands of connections on one thread, ``messages`` their requests, ``sides`` the brokers.
"""
