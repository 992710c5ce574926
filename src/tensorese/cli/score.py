"""`tensorese score`: a model's scores of recorded programs, one line each."""

from __future__ import annotations

from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=_PATH)
@click.argument("records", type=_PATH)
@click.option("--platform", help="Which head; needed when the model has several.")
def score(model: Path, records: Path, platform: str | None) -> None:
    """Print score, workload and program id of every program of a store; higher is faster."""
    from tensorese.cli.progress import lowering_told
    from tensorese.evaluation.inputs import Inputs
    from tensorese.features.programs import read_programs
    from tensorese.models.base import ModelError, load_model
    from tensorese.records.store import Store

    loaded = load_model(model)
    if platform is None and len(loaded.platforms) > 1:
        raise ModelError(
            f"score asks one head, but the model has {', '.join(loaded.platforms)}; name --platform"
        )
    head = platform or loaded.platforms[0]
    loaded.head_index(head)
    with Store.open(records) as store, lowering_told() as listener:
        programs = read_programs([store], split="all")
        inputs = Inputs(programs, [store], listener, failed=True)
        scores = inputs.scores(loaded, head).tolist()
    for value, task, name in zip(scores, programs.task, programs.ids, strict=True):
        click.echo(f"{value:.5f}\t{programs.tasks[task]}\t{name}")
