"""`python -m limbeck`, as launchers of many processes start it."""

from limbeck.cli.main import run

if __name__ == "__main__":
    run()
