"""The queues of unfinished requests, one for each broker, and the thread that serves them.

In: requests for broker ids, and reports of sender processes. Out: commands to sender processes, and one
outcome for each request. Everything here runs in the parent process.
"""
