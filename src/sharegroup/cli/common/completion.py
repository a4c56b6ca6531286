"""``sharegroup completion SHELL``: prints the script that makes a shell complete our words.

The script asks ``sharegroup`` for the possible next words, so it never becomes outdated.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "sharegroup"
VARIABLE = "_SHAREGROUP_COMPLETE"
"""The environment variable with the shell's question; click derives it from the program name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, *, shell: str) -> None:
    """Print the script for shell completion of verbs, options and names.

    Names of groups and topics are read from the cluster of the command line, if it responds within
    a second.

    \b
        bash  eval "$(sharegroup completion bash)"      in ~/.bashrc
        zsh   eval "$(sharegroup completion zsh)"       in ~/.zshrc
        fish  sharegroup completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three shells"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
