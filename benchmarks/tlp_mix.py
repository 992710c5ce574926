"""Which of the banked networks make a model, and how their scores join.

    python benchmarks/tlp_mix.py choose --data DIR --bank DIR
    python benchmarks/tlp_mix.py rows --data DIR --bank DIR --out FILE
    python benchmarks/tlp_mix.py trees --data DIR --bank DIR --out FILE

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
import torch

from tensorese.evaluation.judge import judged_index
from tensorese.models.tlp import lots
from tlp_bank import Banked, load_bank
from tlp_runs import encoded_of, judge_scores, programs_of, shaken_figures, task_sides
from tlp_stages import FROZEN
from tlp_third import FOLDS

Floats = npt.NDArray[np.float64]
JITTERS = (0.0, 0.2, 0.4, 0.6, 0.8)
TREE_JITTERS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.15, 0.3, 0.6, 1.0)
"""Trees of regression score in labels, those of ranking on a scale of their own."""
CANDIDATES = ((1, 4), (1, 8))
"""Mixes of trunks and physical networks that reach the wanted speed and that both tables have."""


@dataclass(frozen=True, kw_only=True)
class Mix:
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
    found = [Mix(trunks=trunks, physics=p) for p in (0, 4, 8, 12) if p <= physics]
    return [*found, Mix(trunks=0, physics=8), Mix(trunks=trunks, physics=8, ranks=True)]


def banked(folder: Path, data: Path, keep: Callable[[Banked], bool]) -> Iterator[tuple[Any, ...]]:
    for path in sorted(folder.glob("bank_*.npz")):
        common, found = load_bank(path)
        for one in found:
            if keep(one):
                programs, held, index = _place(data, common, one)
                yield common, programs, one, held, index


def _place(data: Path, common: dict[str, Any], one: Banked) -> tuple[Any, list[int], Any]:
    programs = programs_of(data, tuple(common["settings"]["platforms"]))
    held = task_sides(data, programs, one.fold)[1]
    index = judged_index(programs, one.platform, held)
    if len(index) != len(one.scores):
        raise SystemExit(f"a bank of {common['system']} was made from other records than {data}")
    return programs, held, index


def tried(args: argparse.Namespace) -> dict[str, dict[str, dict[str, list[float]]]]:
    """System, mix and jitter, platform: mean top-1, top-5, steady, and the three thinned.

    Folds 0-2, many draws. A log of a guided search is mostly good programs, which flatters lots
    most of all: so the thinned figures weigh as much.
    """
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for common, programs, one, held, index in banked(
        args.bank, args.data, lambda banked: banked.fold in FOLDS
    ):
        trunks = common["settings"]["members"]
        thin = np.isin(index, judged_index(programs, one.platform, held, thin=True))
        for mix in mixes(trunks, common["settings"]["physics_members"]):
            scores = mix.join(one.scores, trunks, programs.task[index])
            for jitter in JITTERS if not mix.ranks else (0.0,):
                name = f"{mix.name}, jitter {jitter:g}"
                where = found.setdefault(common["system"], {}).setdefault(name, {})
                mine = where.setdefault(one.platform, [])
                full = shaken_figures(programs, one.platform, index, scores, jitter)
                few = shaken_figures(programs, one.platform, index[thin], scores[thin], jitter)
                for task, f in full.items():
                    g = few.get(task, f)
                    mine.append((f[1] / f[2], f[1] / f[3], f[8], g[1] / g[2], g[1] / g[3], g[8]))
    return {
        system: {
            name: {p: [round(float(x), 4) for x in np.mean(v, axis=0)] for p, v in where.items()}
            for name, where in names.items()
        }
        for system, names in found.items()
    }


def rule(where: dict[str, list[float]]) -> float:
    return float(np.mean([np.mean(figures) for figures in where.values()]))


def choose(args: argparse.Namespace) -> None:
    """The candidate and jitter with the best mean, single platforms; all that was tried is kept."""
    table = tried(args)
    for system, names in table.items():
        for name, where in names.items():
            cells = "  ".join(
                f"{p} {v[0]:.3f}/{v[1]:.3f} thin {v[3]:.3f}/{v[4]:.3f}" for p, v in where.items()
            )
            print(f"{rule(where):.4f} {system} {name}: {cells}")
    known = {
        f"{trunks} + {physics}, jitter {jitter:g}": (trunks, physics, jitter)
        for trunks, physics in CANDIDATES
        for jitter in JITTERS
    }
    best = max(known, key=lambda name: rule(table["tlp"][name]))
    frozen = json.loads(args.recipe.read_text())
    trunks, physics, jitter = known[best]
    frozen["settings"] |= {"members": trunks, "physics_members": physics, "jitter": jitter}
    frozen |= {"mix": best, "mixes": table}
    args.frozen.write_text(json.dumps(frozen, indent=1) + "\n")
    print(f"frozen: {best}")


def rows_of(args: argparse.Namespace) -> None:
    """Every fold and seed of the chosen mix, with the lots that the model itself draws."""
    chosen = json.loads(args.frozen.read_text())["settings"]
    mix = Mix(trunks=chosen["members"], physics=chosen["physics_members"], doubt=chosen["doubt"])
    told = {k: chosen[k] for k in ("members", "physics_members", "doubt", "jitter")}
    with args.out.open("w") as file:
        for common, programs, one, held, index in banked(args.bank, args.data, lambda _: True):
            platforms = tuple(common["settings"]["platforms"])
            encoded = encoded_of(args.data, platforms, programs.spec())
            drawn = lots(torch.from_numpy(encoded.values[index])).double().numpy()
            plain = mix.join(one.scores, common["settings"]["members"], programs.task[index])
            for suffix, jitter in (("", chosen["jitter"]), (" without lots", 0.0)):
                found = judge_scores(programs, one.platform, held, index, plain + jitter * drawn)
                where = {"platform": one.platform, "fold": one.fold, "seed": one.seed}
                settings = {**common["settings"], **told, "jitter": jitter}
                system = common["system"] + suffix
                row = {**common, "system": system, "settings": settings, **where, **found}
                file.write(json.dumps(row) + "\n")
            print(one.platform, one.fold, one.seed, flush=True)


def tree_rows(args: argparse.Namespace) -> None:
    """Trees get lots too, on a scale chosen for each on folds 0-2; then all folds, once."""
    single = Mix(trunks=1, physics=0)
    with args.out.open("w") as file:
        for path in sorted(args.bank.glob("bank_*.npz")):
            common, found = load_bank(path)
            scores: dict[float, list[float]] = {}
            for one in found:
                programs, held, index = _place(args.data, common, one)
                if one.fold not in FOLDS:
                    continue
                for jitter in TREE_JITTERS:
                    figures = shaken_figures(
                        programs, one.platform, index, one.scores[:, 0], jitter
                    )
                    scores.setdefault(jitter, []).extend(
                        (f[1] / f[2] + f[1] / f[3] + f[8]) / 3 for f in figures.values()
                    )
            best = max(scores, key=lambda jitter: float(np.mean(scores[jitter])))
            print(path.name, {j: round(float(np.mean(v)), 4) for j, v in scores.items()}, best)
            for one in found:
                programs, held, index = _place(args.data, common, one)
                encoded = encoded_of(args.data, (one.platform,), programs.spec())
                drawn = lots(torch.from_numpy(encoded.values[index])).double().numpy()
                plain = single.join(one.scores, 1, programs.task[index])
                judged = judge_scores(programs, one.platform, held, index, plain + best * drawn)
                where = {"platform": one.platform, "fold": one.fold, "seed": one.seed}
                settings = {**common["settings"], "jitter": best}
                system = f"{common['system']} with lots"
                row = {**common, "system": system, "settings": settings, **where, **judged}
                file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("choose", "rows", "trees"):
        sub = verbs.add_parser(verb)
        sub.add_argument("--data", type=Path, required=True)
        sub.add_argument("--bank", type=Path, required=True)
        sub.add_argument("--frozen", type=Path, default=FROZEN)
        if verb != "choose":
            sub.add_argument("--out", type=Path, required=True)
        else:
            sub.add_argument("--recipe", type=Path, required=True, help="what freeze3 wrote")
    args = parser.parse_args()
    {"choose": choose, "rows": rows_of, "trees": tree_rows}[args.verb](args)


if __name__ == "__main__":
    main()
