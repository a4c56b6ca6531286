"""Tell the transcripts again: ``python -m tests.transcripts --rewrite``, and review the diff."""

from __future__ import annotations

import argparse

from tests.transcripts.script import STORIES, told_again


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.transcripts")
    parser.add_argument("--rewrite", action="store_true", help="keep what core says today")
    rewrite = parser.parse_args().rewrite
    for path in STORIES:
        before = path.read_text()
        after = told_again(before)
        if after != before:
            print(f"{path.stem} differs" + (", rewritten" if rewrite else ""))
        if rewrite:
            path.write_text(after)


if __name__ == "__main__":
    main()
