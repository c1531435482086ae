"""Tokens: texts and labelled rows turned into token ids by a tokenizer, and cut into blocks, rows or windows."""
