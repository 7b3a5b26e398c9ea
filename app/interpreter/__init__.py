"""Python that a user or a model runs: its outputs, and the child process that runs it natively."""
