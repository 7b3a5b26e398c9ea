"""Stores records: in SQLite natively, in IndexedDB in the page. It knows no kind of record by itself.

Kind, Kinds   what a feature tells of the records that it keeps (kinds.py)
Store         records, queries, transactions, encryption, migrations (store.py)
Rows          bytes on a disk: VolatileRows, SQLiteRows, IndexedDBRows (rows.py)
"""
