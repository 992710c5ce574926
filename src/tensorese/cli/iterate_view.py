"""What `tensorese iterate` looks like: lines on stderr while it runs, or events as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from tensorese.iterate.events import RoundDone, RoundsView

_LINE_SECONDS = 10.0


class LineView(RoundsView):
    """A line for every round, and one now and then for what is going on."""

    def __init__(self) -> None:
        # Ray's driver closes stdout while it runs; where the result belongs is known now.
        self.out = sys.stdout
        self.printed_at = time.monotonic()
        self.learning = ""

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def on_start(self, facts: Mapping[str, Any]) -> None:
        known = f", {facts['rounds']} rounds are there already" if facts["rounds"] else ""
        self.say(
            f"{facts['tasks']} tasks on {facts['platform']}, base model {facts['model']}, at most "
            f"{facts['of']} rounds{known}"
        )

    def on_note(self, text: str) -> None:
        self.say(text)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        loss = progress.get("loss")
        self.learning = f"; learning from {progress['learnt']} rounds, step {progress['steps']}"
        self.learning += f", loss {loss:.3f}" if loss is not None else ""

    def on_measured(self, number: int, done: int, of: int) -> None:
        if time.monotonic() - self.printed_at >= _LINE_SECONDS:
            self.printed_at = time.monotonic()
            self.say(f"round {number}: {done} of {of} programs measured{self.learning}")

    def on_round(self, event: RoundDone) -> None:
        line = event.line
        gain = "" if line["gain"] is None else f", gained {100 * line['gain']:.1f} %"
        bad = [f"{n} {name}" for name, n in line["statuses"].items() if name != "ok"]
        self.learning = ""
        self.say(
            f"round {line['round']}: {1e3 * line['sum']:.4g} ms over {line['tasks']} of "
            f"{event.of} tasks{gain}; {line['trials']} trials in {line['secs']:.0f} s"
            + (f"; {', '.join(bad)}" if bad else "")
        )

    def on_end(self, facts: Mapping[str, Any]) -> None:
        sums = facts["sums"]
        line = f"{facts['rounds']} rounds, {facts['trials']} trials in {facts['seconds']:.0f} s"
        if sums:
            line += f": {1e3 * sums[0]:.4g} ms to {1e3 * sums[-1]:.4g} ms"
        click.echo(f"{line} ({facts['reason'] or facts['state']})", file=self.out)
        if facts["state"] == "interrupted":
            click.echo("the same command goes on", file=self.out)
        if facts["final_model"]:
            click.echo(
                f"tensorese tune --proposer tlm:{facts['final_model']} writes with the last model",
                file=self.out,
            )
        click.echo(f"everything is in {facts['run']}, see report.html", file=self.out)


class JsonView(LineView):
    """One event a line on stdout; `event` names its kind."""

    def _print(self, kind: str, **fields: Any) -> None:
        click.echo(json.dumps({"event": kind, **fields}, allow_nan=False), file=self.out)

    def on_start(self, facts: Mapping[str, Any]) -> None:
        self._print("start", **facts)

    def on_note(self, text: str) -> None:
        self._print("note", text=text)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        self._print("learning", **progress)

    def on_measured(self, number: int, done: int, of: int) -> None:
        if time.monotonic() - self.printed_at >= _LINE_SECONDS:
            self.printed_at = time.monotonic()
            self._print("measuring", round=number, done=done, of=of)

    def on_round(self, event: RoundDone) -> None:
        self._print("round", of=event.of, **event.line)

    def on_end(self, facts: Mapping[str, Any]) -> None:
        self._print("end", **facts)
