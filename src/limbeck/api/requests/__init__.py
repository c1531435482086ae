"""Requests: the options of every call, one file a call, of which its command and its Python function are made."""
