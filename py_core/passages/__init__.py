"""Passages of the files that a person attaches: where a text is cut, and which of its pieces a question is about."""
