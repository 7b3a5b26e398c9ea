"""What is learned and logged, and how it survives: records in SQLite natively, in IndexedDB in the page.

Patterns, Policies, Sessions, Witness      what each part of the app keeps (patterns.py ... witness.py)
Store                                      records, queries, transactions, encryption, migrations (store.py)
Rows                                       bytes on a disk: VolatileRows, SQLiteRows, IndexedDBRows (rows.py)
"""
