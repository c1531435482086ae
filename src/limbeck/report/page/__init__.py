"""The report as a page: folders are collected, laid out as sections of text, tables and figures, and rendered."""
