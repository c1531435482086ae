"""Labelled rows: texts with a class, a value, an answer or tags, and the rules by which labels are read."""
