"""The records that the application keeps: a module a kind, `KINDS` lists them all, and `Memory` opens them."""
