"""Runs the command line of sharegroup, for ``python -m sharegroup``."""

from sharegroup.cli.main import main

if __name__ == "__main__":
    main()
