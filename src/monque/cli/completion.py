"""`monque completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that teaches your shell to complete.

    \b
    Examples:
      monque completion bash >> ~/.bashrc
      monque completion zsh >> ~/.zshrc
      monque completion fish > ~/.config/fish/completions/monque.fish
    """
    from monque.cli.commands import monque

    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - these three come with click
    click.echo(script(monque, {}, "monque", "_MONQUE_COMPLETE").source())
