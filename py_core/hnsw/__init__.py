"""Nearest-neighbour search: an HNSW index (index.py), its file (index_file.py), and kernels in numpy and WASM."""
