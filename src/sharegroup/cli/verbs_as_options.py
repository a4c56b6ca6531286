"""Groups of verbs that can also be said in the way of Kafka's tools.

``sharegroup groups describe --group billing`` is ours; whoever has ``kafka-share-groups.sh
--describe --group billing`` in their fingers may say ``sharegroup groups --describe --group
billing``.  Before the first verb an option that is named like a verb is that verb, wherever it
stands; after it, options mean what the verb says.
"""

from __future__ import annotations

import click


class VerbsAsOptions(click.Group):
    """A group of commands that takes ``--describe`` for ``describe``, if no verb comes first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb first, whichever way it was said."""
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        said = [one for one in args if one.startswith("--") and one[2:] in self.commands]
        if len(said) > 1:
            raise click.UsageError(f"say one of {' and '.join(said)}", ctx)
        for one in said:
            rest = list(args)
            rest.remove(one)
            args = [one[2:], *rest]
        return super().parse_args(ctx, args)
