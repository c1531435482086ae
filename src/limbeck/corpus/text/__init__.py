"""Text: documents, the prose in pages and docstrings, and the words, sentences and titles of a document."""
