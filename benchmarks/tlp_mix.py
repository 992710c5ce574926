"""Which networks of the banked ones make a model, and how their scores join.

    python benchmarks/tlp_mix.py choose --data DIR --bank DIR
    python benchmarks/tlp_mix.py rows --data DIR --bank DIR --out FILE

`choose` looks at folds 0-2 only and writes the choice into `tlp_frozen.json`; `rows` then judges
all five folds of the chosen mix, once. The first networks of a bank are trunks, the rest see the
physical features alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.judge import judged_index
from tlp_bank import Banked, load_bank
from tlp_runs import judge_scores, programs_of, task_sides
from tlp_stages import FROZEN
from tlp_third import FOLDS

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """So many networks of each kind; `join` makes one score of theirs."""

    trunks: int
    physics: int
    doubt: float = 0.0
    ranks: bool = False
    """Means of ranks instead of scores; needs batch-mates, so for comparison only."""

    @property
    def name(self) -> str:
        more = f", doubt {self.doubt:g}" if self.doubt else ""
        return f"{self.trunks} + {self.physics}{more}{', by rank' if self.ranks else ''}"

    def join(self, scores_nm: Floats, trunks: int, task_n: npt.NDArray[np.int64]) -> Floats:
        each = np.concatenate(
            [scores_nm[:, : self.trunks], scores_nm[:, trunks : trunks + self.physics]], axis=1
        )
        if self.ranks:
            for k in np.unique(task_n):
                mine = task_n == k
                each[mine] = each[mine].argsort(0).argsort(0) / mine.sum()
        out: Floats = each.mean(1) - self.doubt * each.std(1)
        return out


def mixes(trunks: int, physics: int) -> list[Mix]:
    counts = [k for k in (4, 8, 12) if k <= physics]
    found = [Mix(trunks=t, physics=p) for p in counts for t in range(trunks + 1)]
    found += [Mix(trunks=t, physics=0) for t in range(1, trunks + 1)]
    most = {"trunks": trunks, "physics": counts[-1]}
    found += [Mix(**most, doubt=doubt) for doubt in (0.25, 0.5)]
    return [*found, Mix(**most, ranks=True)]


def banked(folder: Path, data: Path, keep: Callable[[Banked], bool]) -> Iterator[tuple[Any, ...]]:
    for path in sorted(folder.glob("bank_*.npz")):
        common, found = load_bank(path)
        platforms = tuple(common["settings"]["platforms"])
        programs = programs_of(data, platforms)
        for one in found:
            if not keep(one):
                continue
            held = task_sides(data, programs, one.fold)[1]
            index = judged_index(programs, one.platform, held)
            if len(index) != len(one.scores):
                raise SystemExit(f"{path} was made from other records than {data} holds")
            yield common, programs, one, held, index


def judged(args: argparse.Namespace, only: Mix | None) -> list[dict[str, Any]]:
    """Rows of every mix on folds 0-2, or of one on all folds."""
    rows = []
    for common, programs, one, held, index in banked(
        args.bank, args.data, lambda b: only is not None or b.fold in FOLDS
    ):
        settings = common["settings"]
        trunks = settings["members"]
        for mix in mixes(trunks, settings["physics_members"]) if only is None else [only]:
            where = {"platform": one.platform, "fold": one.fold, "seed": one.seed}
            scores = mix.join(one.scores, trunks, programs.task[index])
            found = judge_scores(programs, one.platform, held, index, scores, brief=only is None)
            extra = {"mix": mix.name} if only is None else {"settings": {**settings, **_told(mix)}}
            rows.append({**common, **extra, **where, **found})
    return rows


def _told(mix: Mix) -> dict[str, Any]:
    return {"members": mix.trunks, "physics_members": mix.physics, "doubt": mix.doubt}


def figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """By system and mix, by platform: mean top-1, top-5, steady over tasks and seeds."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        mine = found.setdefault(f"{row['system']} {row['mix']}", {}).setdefault(row["platform"], [])
        mine += [(f[1] / f[2], f[1] / f[3], f[8]) for f in row["tasks"].values()]
    return {
        s: {p: [float(x) for x in np.mean(v, axis=0)] for p, v in w.items()}
        for s, w in found.items()
    }


def choose(args: argparse.Namespace) -> None:
    table = figures(judged(args, None))
    for system, where in table.items():
        cells = "  ".join(f"{p} {a:.3f}/{b:.3f}/{c:.3f}" for p, (a, b, c) in where.items())
        print(f"{np.mean([np.mean(v) for v in where.values()]):.4f} {system}: {cells}")
    (args.bank / "mixes.json").write_text(json.dumps(table, indent=1) + "\n")


def rows_of(args: argparse.Namespace) -> None:
    chosen = json.loads(args.frozen.read_text())["settings"]
    mix = Mix(trunks=chosen["members"], physics=chosen["physics_members"], doubt=chosen["doubt"])
    with args.out.open("w") as file:
        for row in judged(args, mix):
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("choose", "rows"):
        sub = verbs.add_parser(verb)
        sub.add_argument("--data", type=Path, required=True)
        sub.add_argument("--bank", type=Path, required=True)
        sub.add_argument("--frozen", type=Path, default=FROZEN)
        if verb == "rows":
            sub.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    {"choose": choose, "rows": rows_of}[args.verb](args)


if __name__ == "__main__":
    main()
