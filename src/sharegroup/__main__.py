"""Runs the command line of sharegroup, for ``python -m sharegroup`` and the program."""

from __future__ import annotations

import sys

from sharegroup import stop_signals


def main() -> None:
    """Run the command line and exit."""
    if _is_supervised(sys.argv[1:]):
        # The imports take a while, and a reload in this time would end the process.
        stop_signals.hold()
    # Imported here, because of that.
    from sharegroup.cli.main import main as run

    run()


def _is_supervised(arguments: list[str]) -> bool:
    """Whether these are the arguments of a supervisor, and of its processes."""
    return arguments[:1] == ["worker"] and any(
        argument.startswith(("-n", "--processes")) for argument in arguments
    )


if __name__ == "__main__":
    main()
