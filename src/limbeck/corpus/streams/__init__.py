"""Streams: text that is read and tokenised while it is trained on."""
