"""``dispatch``: frames -> brokers, sent from executors; the outcomes come back as a journal.

In: frames and a journal folder. Out: a result for each broker, and the journal. One task owns a broker
(``claims``) and sends the frames after its checkpoint. This room knows nothing of partitions.
"""
