"""Tokens: documents and labelled rows turned into token rows by a tokenizer."""
