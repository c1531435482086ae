"""Building: stored documents and rows split, tokenised, written to the cache and opened as a corpus."""
