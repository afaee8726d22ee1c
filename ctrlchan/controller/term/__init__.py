"""A term of the controller: the election, the failover, outcomes of requests, and what ends the term."""
