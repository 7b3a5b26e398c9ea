"""Which agent a message is for: a linear head, and the votes of the most similar patterns (router.py)."""
