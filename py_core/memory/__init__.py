"""Stores learned and logged data as records: in SQLite natively, in IndexedDB in the page.

Patterns, Policies, Sessions, Trajectories what each part of the app keeps (patterns.py ... trajectories.py)
Store                                      records, queries, transactions, encryption, migrations (store.py)
Rows                                       bytes on a disk: VolatileRows, SQLiteRows, IndexedDBRows (rows.py)
"""
