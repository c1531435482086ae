"""Files: finding them, opening and unpacking them safely, and reading them as texts or labelled rows by their kind."""
