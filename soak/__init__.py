"""Long runs that look for a wrong number: random architectures, killed processes, damaged files.

``python -m soak`` runs everything that is asked for and ends with one table. Each kind can be run alone
(``python -m soak.architectures --count 2000``), all resume where an interrupted run ended.
"""
