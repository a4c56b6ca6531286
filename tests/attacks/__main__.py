"""The command of `tests.attacks`: run attacks by name and print what was measured."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from tests.attacks.catalog import ATTACKS, BY_NAME
from tests.attacks.data_attacks import DAMAGES, lose_directory, lose_journal
from tests.attacks.harness import Report, run

ON_DATA = {name: partial(lose_journal, damage) for name, damage in DAMAGES.items()}
ON_DATA["directory-deleted"] = lose_directory


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Print the names of all attacks.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with another version of the broker's packages (an archive's src).",
)
def main(*, names: tuple[str, ...], is_list: bool, source: Path | None) -> None:
    """Run the attacks NAMES, or all of them; exit code 1 if one of them did not hold."""
    if is_list:
        for attack in ATTACKS:
            click.echo(f"{attack.name:28} {attack.what}{' (slow)' if attack.slow else ''}")
        for name in ON_DATA:
            click.echo(f"{name:28} a mistake with the data directory")
        return
    unknown = [name for name in names if name not in BY_NAME and name not in ON_DATA]
    if unknown:
        raise click.UsageError(f"no such attack: {', '.join(unknown)}; see --list")
    source = source.resolve() if source else None
    broken = 0
    for name in names or (*BY_NAME, *ON_DATA):
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            report = _run(name, Path(folder), source)
        broken += bool(report.problems)
        click.echo(report.line())
    sys.exit(1 if broken else 0)


def _run(name: str, folder: Path, source: Path | None) -> Report:
    if name in BY_NAME:
        return run(BY_NAME[name], folder, source)
    return Report(name, ON_DATA[name](folder, source))


if __name__ == "__main__":
    main()
