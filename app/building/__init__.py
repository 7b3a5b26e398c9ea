"""The steps of build.py. Standard library only: it runs before the .venv exists."""
