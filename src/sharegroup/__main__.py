"""``python -m sharegroup`` and the console script ``sharegroup``."""

import sys

from sharegroup.cli.main import main as run


def main() -> None:
    """Run the command line in this process, which is its own."""
    # kio teaches Hypothesis its types wherever that is installed, at 0.25 s for each start.  A
    # command line makes no test data; None says that there is no such module.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    run()


if __name__ == "__main__":
    main()
