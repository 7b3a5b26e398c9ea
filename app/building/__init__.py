"""What build.py is made of. Standard library only: it runs before the .venv exists."""
