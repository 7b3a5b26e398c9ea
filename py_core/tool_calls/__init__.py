"""Calls of tools: their definitions, the forms in which model families write calls, and how these are read and shaped.

Nothing here runs a tool. `definitions.py` reads tools and choices as OpenAI writes them, `forms.py` knows the families,
`prompt.py` brings tools and results into a prompt, `shape.py` makes the grammar of an answer, `reader.py` finds the
calls in it.
"""
