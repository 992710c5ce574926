"""The command line: one file a verb, imported only when that verb is called.

A user's mistake is one line and exit code 2; `--debug` shows where it came from.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, shell_complete

from tensorese import __version__, interrupts
from tensorese.errors import TensoreseError, did_you_mean

VERBS: dict[str, tuple[str, str]] = {
    # verb: (module:command, the line `tensorese --help` shows without importing it)
    "doctor": ("tensorese.cli.doctor:doctor", "Check this machine and run one real program."),
    "demo": (
        "tensorese.cli.demo:demo",
        "Tune ResNet-18 in three minutes; compare with torch.",
    ),
    "tune": ("tensorese.cli.tune:tune", "Tune a model: a faster, verified library and a report."),
    "tasks": ("tensorese.cli.tasks:tasks", "List what there is to tune in a model."),
    "compile": ("tensorese.cli.compile:compile_command", "Build, verify and time a tuned run."),
    "bench": ("tensorese.cli.bench:bench", "Time a run's library against torch and others."),
    "dashboard": ("tensorese.cli.dashboard:dashboard", "Watch a run in the browser, or --demo."),
    "measure": ("tensorese.cli.measure:measure", "Measure a store's programs on this machine."),
    "collect": ("tensorese.cli.collect:collect", "Measure random programs of many tasks."),
    "iterate": ("tensorese.cli.iterate:iterate", "Rounds of writing, measuring and learning."),
    "data": ("tensorese.cli.data:data", "Import, inspect, export, merge, publish, verify records."),
    "train": ("tensorese.cli.train:train", "Train a cost model on measured programs."),
    "eval": ("tensorese.cli.eval:evaluate", "Judge a model on workloads it has not seen."),
    "compare": (
        "tensorese.cli.compare:compare",
        "Compare all models on all platforms' test rows.",
    ),
    "onboard": ("tensorese.cli.onboard:onboard", "Teach the models a new platform in minutes."),
    "score": ("tensorese.cli.score:score", "Print a model's scores of recorded programs."),
    "completion": ("tensorese.cli.completion:completion", "Print completion for a shell."),
}

PROGRAM = "tensorese"
COMPLETE = "_TENSORESE_COMPLETE"
"""Set by the shell's completion function when it asks what may come next."""

RENAMED = {"bench-models": "compare"}


class LazyGroup(click.Group):
    """Lists every verb, imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [(verb, line) for verb, (_, line) in VERBS.items() if verb.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(verb, help=line) for verb, line in verbs), *options]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in RENAMED:
            raise click.UsageError(f"{args[0]} is now `tensorese {RENAMED[args[0]]}`")
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = did_you_mean(args[0], VERBS)
            raise click.UsageError(f"no such command {args[0]!r}{near}; see tensorese --help")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Tunes tensor programs with language models of schedules."""


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line and leaves the process with its exit code."""
    _open_streams()
    if asked := os.environ.get(COMPLETE):
        sys.exit(shell_complete(cli, {}, PROGRAM, COMPLETE, asked))
    arguments = list(sys.argv[1:] if args is None else args)
    sys.exit(run(arguments))


def _open_streams() -> None:
    """What the caller closed leads nowhere, instead of into the next file that is opened."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_RDWR
            setattr(sys, name, os.fdopen(os.open(os.devnull, mode), "w" if number else "r"))


def _at_home(argument: str) -> str:
    """`--out=~/run` and what no shell has seen; a shell expands the others itself."""
    option, equals, value = argument.partition("=")
    if argument.startswith("--") and value.startswith("~"):
        return option + equals + os.path.expanduser(value)
    return os.path.expanduser(argument) if argument.startswith("~") else argument


def run(arguments: list[str]) -> int:
    """The exit code: 0, what the command returned, 2 for a refusal, 130 for Ctrl-C."""
    debug = "--debug" in arguments
    arguments = [_at_home(argument) for argument in arguments]
    try:
        with (
            interrupts.remembered(),
            cli.make_context(PROGRAM, arguments or ["--help"]) as context,
        ):
            code = cli.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:  # --help, --version
        return leave.exit_code
    except (TensoreseError, click.ClickException) as error:
        if debug:
            traceback.print_exc()
        return _refuse(error, arguments)
    except (KeyboardInterrupt, click.Abort):
        click.echo("tensorese: interrupted", err=True)
        return 130
    except BrokenPipeError:
        _print_nowhere()  # the reader (head, less) has gone
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        _print_nowhere()  # it may be the output that cannot be written
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(TensoreseError(f"{where}{error.strerror or error}"), arguments)


def _print_nowhere() -> None:
    """What is still in the buffer of stdout must not fail again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(error: TensoreseError | click.ClickException, arguments: Sequence[str]) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2: a bare group asks for its help
        click.echo(str(error))
        return 0
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    text = " ".join(text.split())
    options = error.options if isinstance(error, TensoreseError) else ""
    if options and text.endswith(options):  # shown as the whole command, to be pasted
        text = f"{text.removesuffix(options)}tensorese {shlex.join(arguments)} {options}"
    with contextlib.suppress(OSError):  # a full or closed stderr: the exit code says enough
        click.echo(f"tensorese: {text}", err=True)
    return 2
