"""Which agent a message is for: an index of learned patterns, and who they vote for."""
