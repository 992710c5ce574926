"""`tensorese completion`: what makes a shell complete this command."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class


def model_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Of an argument MODEL that may be no file: the shell offers its files all the same."""
    return [CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print SHELL's completion of verbs and options.

    bash and zsh: eval "$(tensorese completion bash)" in the startup file;
    fish: tensorese completion fish > ~/.config/fish/completions/tensorese.fish
    """
    from tensorese.cli import COMPLETE, PROGRAM, cli

    complete = get_completion_class(shell)
    assert complete is not None  # click has one for each of the choices
    click.echo(complete(cli, {}, PROGRAM, COMPLETE).source())
