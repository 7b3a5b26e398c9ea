"""Exact tools: what a program computes better than a model guesses: arithmetic, dates, units and counting.

first_look.py says at once whether a message could ask for any of that; answering.py answers it.
docs/develop/recipes/tool.md shows how to add a tool.
"""
