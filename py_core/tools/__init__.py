"""Exact tools for questions that a program computes better than a model guesses: arithmetic, dates, units, counting.

first_look.py decides quickly whether a message could ask for any of these; toolbox.py answers it.
docs/develop/recipes/tool.md shows how to add a tool.
"""
