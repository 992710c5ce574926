"""`tensorese score`: a model's scores of given records, one line each."""

from __future__ import annotations

from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=_PATH)
@click.argument("records", type=_PATH)
@click.option("--platform", help="Which head; needed when the model has several.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda.")
def score(model: Path, records: Path, platform: str | None, device: str) -> None:
    """Print score, workload and program id of every program of a store; higher is faster."""
    import torch

    from tensorese.cli.train import pick_device
    from tensorese.features.matrix import Encoder
    from tensorese.features.programs import encode_programs, read_programs
    from tensorese.models.folder import load_model
    from tensorese.models.predict import as_batch, predict
    from tensorese.models.tlp import ModelError
    from tensorese.records.store import Store

    saved = load_model(model, device=pick_device(device)).model
    if platform is None and len(saved.platforms) > 1:
        raise ModelError(
            f"score asks one head, but the model has {', '.join(saved.platforms)}; name --platform"
        )
    head = saved.head_index(platform or saved.platforms[0])
    programs = read_programs([Store.open(records)], split="all")
    encoded = encode_programs(programs, Encoder(saved.config.spec))
    batch = as_batch(encoded).to(next(saved.parameters()).device)
    index = torch.arange(len(programs), device=batch.sketch_N.device)
    scores = predict(saved, batch, index)[:, head].cpu().tolist()
    for value, task, name in zip(scores, programs.task, programs.ids, strict=True):
        click.echo(f"{value:.5f}\t{programs.tasks[task]}\t{name}")
