"""Makes `recipes/papers/*.yaml` and the index of `recipes/README.md` from tables of the papers' numbers.

python -m recipes.generator          writes them
python -m recipes.generator --check  says what would change, and fails if anything would
"""
