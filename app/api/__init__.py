"""Answers in OpenAI's form: what a request asks for, and what comes back. The doors are app/api/server.py (HTTP) and,
on the page, the service worker."""
