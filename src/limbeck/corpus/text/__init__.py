"""Text: documents, the prose in pages and docstrings, and the sentences, paragraphs and titles of a document."""
