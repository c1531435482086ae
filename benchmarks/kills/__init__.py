"""Jobs that are killed again and again: what they are, how they die, and what is left of them."""
