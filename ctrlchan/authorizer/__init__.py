"""Who may do what: Kafka's ACLs in ZooKeeper, and the interface of an authorizer of the user's own.

``acls`` has Kafka's words: resources, operations, entries, filters. ``interface`` has the base class
``Authorizer``; ``loading`` makes the one that ``authorizer.class.name`` names. ``acl_authorizer`` is Kafka's
AclAuthorizer: ``acl_cache`` decides without any input or output, ``acl_nodes`` reads, watches and writes
ZooKeeper's nodes, ``audit_log`` writes a line for each decision.

In come questions of ``server/access.py`` (requester, operation, resource), out go answers. The room does not
know what a request is.
"""
