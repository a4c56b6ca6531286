"""Groups of verbs that also accept the syntax of Kafka's tools.

``sharegroup groups describe --group billing`` is our syntax. Users of ``kafka-share-groups.sh
--describe --group billing`` may write ``sharegroup groups --describe --group billing``. If the
first word is not a verb, an option with the name of a verb selects that verb, at any position.
If the first word is a verb, all options are those of the verb.
"""

from __future__ import annotations

import click


class VerbsAsOptions(click.Group):
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
