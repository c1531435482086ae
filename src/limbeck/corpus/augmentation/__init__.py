"""Augmentation: copies of labelled rows in which some words are replaced, as in TinyBERT."""
