"""A live journal watched: rolling figures of each broker and API, and alerts.

In: a journal folder that is being written, what its channels say of unanswered requests, perhaps a
snapshot. Out: ``Figures`` whenever somebody looks. ``cells`` adds up, ``ledger`` keeps sums so that no row
counts twice whatever is killed, ``unfinished`` knows what waits, ``rules`` says what is alarming, ``job``
runs it in Spark, ``prometheus`` writes it down.
"""
