"""A term of the controller: the event loop, the election, the failover, and what ends them."""
