"""The names that a shell is offered: it puts them into the command line without quoting."""

from __future__ import annotations

from sharegroup.cli.common.name_arguments import matching_names


def test_names_that_a_shell_would_run_or_a_terminal_obey_are_not_offered() -> None:
    names = [
        *("x$(touch /tmp/owned)", "x`id`", "x;id", "x|id", "x>file", "x y", "x*", "x'", 'x"'),
        *("x\x1b]0;owned\x07", "x\nplain,other", "x\u202e", "x&", "x\\", "x!1", "x{a,b}", "~x"),
    ]
    assert matching_names([*names, "x.2", "x-1:a@b/c", "xü", "other"], "x") == [
        "x-1:a@b/c",
        "x.2",
        "xü",
    ]
