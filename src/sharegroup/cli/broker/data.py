"""``sharegroup data``: check, repair and back up a data directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from sharegroup.broker.cluster.catalog import CATALOG_FILE
from sharegroup.cli.broker.backup import backup, broker_of, paused
from sharegroup.cli.broker.repairing.diagnosis import findings, segment_findings
from sharegroup.cli.broker.repairing.repair import Repair, RepairStep
from sharegroup.cli.broker.repairing.state import read_state
from sharegroup.cli.common.cluster_access import json_option
from sharegroup.cli.common.output import Listing, print_listing
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.errors import InvalidRequest
from sharegroup.storage.directory.log_directory import LOCK_FILE
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.folders import partition_of
from sharegroup.storage.disk.metadata_files import META_PROPERTIES_FILE

MARKS = frozenset({LOCK_FILE, CATALOG_FILE, META_PROPERTIES_FILE})
"""Files that a broker makes when it first starts on a data directory."""

data_option = click.option(
    "--data",
    "directory",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="Data directory of a stopped broker.",
)


@click.group("data", cls=VerbGroup)
def command() -> None:
    """Check and repair a data directory without a broker; back it up, also with one.

    Nothing is deleted: obstructing files are moved to the folder set-aside of the data directory.
    docs/recovery.md describes for each problem what the broker does and what to do next.
    """


@command.command("check")
@data_option
@click.option("--skip-records", is_flag=True, help="Do not read the segments.")
@json_option
def check(*, directory: str, skip_records: bool, as_json: bool) -> int:
    """Show problems, and what the broker does about them at start.

    Every batch is read and checked against its checksum; nothing is changed.

    Exit code 1: there is a problem.
    """
    files, root = RealFiles(), os.path.realpath(directory)
    with _locked(files, root):
        state = read_state(files, root)
        problems = list(findings(state))
        if not skip_records:
            problems += segment_findings(state)
    rows = [finding.row() for finding in problems]
    listing = Listing(rows, ("file", "problem", "at_start", "repair"), "No problems were found.")
    print_listing(listing, as_json=as_json)
    return 1 if problems else 0


@command.command("repair")
@data_option
@click.option(
    "--put-back",
    "path",
    metavar="FOLDER",
    default=None,
    help="Move this partition folder from set-aside back to its place.",
)
@click.option("--dry-run", is_flag=True, help="Show the repairs without making them.")
@click.option("--execute", is_flag=True, help="Make the repairs.")
@json_option
def repair(
    *, directory: str, path: str | None, dry_run: bool, execute: bool, as_json: bool
) -> None:
    """Repair the data directory so that the broker starts with all existing records.

    Topics of folders that are missing in a lost or older catalog are added to it.  Their settings
    are lost: such a topic keeps its records forever, until retention is set again.

    \b
        sharegroup data repair --data DIR --dry-run
        sharegroup data repair --data DIR --execute
        sharegroup data repair --data DIR --put-back DIR/set-aside/WHEN-repair/FOLDER --execute
    """
    if dry_run == execute:
        raise click.UsageError("give one of --dry-run and --execute")
    files, root = RealFiles(), os.path.realpath(directory)
    with _locked(files, root):
        steps: list[RepairStep] = []
        if path is not None:
            steps = [Repair(files, read_state(files, root)).put_back(path)]
            _do(steps, execute=execute)
        if path is None or execute:
            planned = list(Repair(files, read_state(files, root)).steps())
            _do(planned, execute=execute)
            steps += planned
    rows = [{"file": step.file, "change": step.change, "done": execute} for step in steps]
    listing = Listing(rows, ("file", "change"), "There is nothing to repair.")
    print_listing(listing, as_json=as_json)


@command.command("backup")
@click.option(
    "--data",
    "directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory; its broker may run.",
)
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The copy: a folder that does not exist yet.",
)
@json_option
def backup_(*, directory: Path, target: Path, as_json: bool) -> None:
    """Copy the data directory as it is at one moment, also while its broker runs.

    The broker is paused for some milliseconds. The copy is what a kill -9 at that moment would have
    left: a broker starts on it with every confirmed record and acknowledgement. Check it with
    sharegroup data check, which reads every batch.

    \b
        sharegroup data backup --data ./queue --to /backup/2026-11-30
        sharegroup data check --data /backup/2026-11-30
    """
    files, root = RealFiles(), directory.resolve()
    try:
        with _locked(files, str(root)):
            done = backup(root, target, pause=None)
    except InvalidRequest as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
        process = broker_of(root)
        done = backup(root, target, pause=partial(paused, process))
    row = {
        "backup": str(done.path),
        "files": done.files,
        "bytes": done.bytes,
        "paused_ms": round(done.paused_ms, 1),
    }
    print_listing(Listing([row], tuple(row), ""), as_json=as_json)


def _do(steps: list[RepairStep], *, execute: bool) -> None:
    for step in steps if execute else ():
        step.execute()


@contextmanager
def _locked(files: RealFiles, root: str) -> Iterator[None]:
    """Hold the lock of the data directory; InvalidRequest if a broker runs on it, or if it is none.

    A folder is a data directory if it has any file that only a broker makes: its catalog may be
    lost, and a lock must not be left in a folder that was named by mistake.
    """
    try:
        names = files.names(root)
    except PermissionError as error:
        raise _not_permitted(root, error) from error
    if not (MARKS.intersection(names) or any(partition_of(name) for name in names)):
        raise InvalidRequest(
            f"{root} is not a data directory: expected one of the files {', '.join(sorted(MARKS))} "
            "or folders of partitions; give the directory of serve --data, or of log.dirs"
        )
    try:
        fd = files.lock(f"{root}/{LOCK_FILE}")
    except BlockingIOError as error:
        raise InvalidRequest(
            f"a broker is using {root} ({error.strerror}); stop it first"
        ) from error
    except PermissionError as error:
        raise _not_permitted(root, error) from error
    try:
        yield
    finally:
        files.close(fd)


def _not_permitted(root: str, error: PermissionError) -> InvalidRequest:
    """Return the error for a data directory of another user."""
    return InvalidRequest(
        f"this user may not use the data directory {root} ({error.strerror}: {error.filename}); "
        "run the command as the user of its broker, or as root"
    )
