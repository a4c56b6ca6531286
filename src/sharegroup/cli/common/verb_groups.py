"""Groups of verbs: they suggest one for a mistyped word, and accept the syntax of Kafka's tools.

``sharegroup groups describe --group billing`` is our syntax. Users of ``kafka-share-groups.sh
--describe --group billing`` may write ``sharegroup groups --describe --group billing``. If the
first word is not a verb, an option with the name of a verb selects that verb, at any position. If
the first word is a verb, all options are those of the verb.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from sharegroup.suggestions import did_you_mean

PURPOSE_CHARACTERS_MAX = 300
"""Length at which a purpose is cut in a list of commands; all are shorter."""


class VerbGroup(click.Group):
    """A group of commands that suggests one for a mistyped word."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word; `click.UsageError` if there is none."""
        word = args[0]
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            raise click.UsageError(f"No such command {word!r}{self.suggestion(ctx, word)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purposes whole: click cuts them at the width of the terminal."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.purposes(ctx)))

    def purposes(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Yield each command that is listed, and the first sentence of its help."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield name, command.get_short_help_str(PURPOSE_CHARACTERS_MAX)

    def suggestion(self, ctx: click.Context, word: str) -> str:
        """Return what the word may stand for, as the end of a sentence."""
        return did_you_mean(word, self.list_commands(ctx))


class VerbsAsOptions(VerbGroup):
    """A group of commands that takes ``--describe`` for ``describe``, if no verb comes first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the verb to the front, given as a word or as an option."""
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        verb_options = [
            option for option in args if option.startswith("--") and option[2:] in self.commands
        ]
        if len(verb_options) > 1:
            raise click.UsageError(f"give only one of {' and '.join(verb_options)}", ctx)
        for option in verb_options:
            other_args = list(args)
            other_args.remove(option)
            args = [option[2:], *other_args]
        return super().parse_args(ctx, args)
