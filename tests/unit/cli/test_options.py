"""Options that become one argument of a verb."""

from __future__ import annotations

from typing import NamedTuple

import click
from click.testing import CliRunner

from sharegroup.cli.common.options import gathered


class Place(NamedTuple):
    topic: str
    partition: int


place_options = gathered(
    "place",
    Place,
    click.argument("topic"),
    click.option("--partition", type=int, default=0, help="Number of the partition."),
    click.option("--hidden", expose_value=False, hidden=True),
)


@click.command()
@place_options
@click.option("--deep", is_flag=True, help="Look deeper.")
def verb(*, place: Place, deep: bool) -> None:
    click.echo(f"{place!r} {deep}")


def test_options_become_one_argument_and_others_stay() -> None:
    result = CliRunner().invoke(verb, ["orders", "--partition", "3", "--deep", "--hidden", "x"])
    assert result.output == "Place(topic='orders', partition=3) True\n"
    assert (
        CliRunner().invoke(verb, ["orders"]).output == "Place(topic='orders', partition=0) False\n"
    )


def test_help_has_the_options_in_their_order() -> None:
    output = CliRunner().invoke(verb, ["--help"]).output
    assert output.index("--partition") < output.index("--deep")


def test_object_that_cannot_be_made_is_wrong_usage() -> None:
    def refused(*, name: str) -> str:
        raise click.UsageError(f"no {name}")

    options = gathered("chosen", refused, click.option("--name", default="one"))
    result = CliRunner().invoke(click.command()(options(lambda *, chosen: chosen)), [])
    assert result.exit_code == 2
    assert "no one" in result.output
