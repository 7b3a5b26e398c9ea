"""Passages of the files that a person attaches: cutting a text, and finding the passages that a question is about."""
