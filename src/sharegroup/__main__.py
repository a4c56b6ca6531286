"""``python -m sharegroup`` and the console script ``sharegroup``."""

from sharegroup.cli.main import main

if __name__ == "__main__":
    main()
