"""Stored targets: what a teacher said of texts, kept in a folder, from which students learn without the teacher.

A *store* is such a folder. It has a row for each text, found by the text's key (`limbeck.corpus.text.text_keys`), with
one or more *streams*: sentence vectors (`pooled`, `vector`) or scores (`logits`). `StoreFacts` says whose outputs they
are, `StoreWriter` adds rows, and `Store` reads them.
"""
