"""Chooses the agent for a message: a linear head, and the votes of the most similar patterns (router.py)."""
