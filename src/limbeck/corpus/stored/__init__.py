"""Stored documents and rows: what sources hold, read once into the cache and shared by every tokenizer and length."""
