"""Which of the banked networks make a model, and how their scores join.

    python benchmarks/tlp_mix.py choose --data DIR --bank DIR --grown DIR --recipe FILE
    python benchmarks/tlp_mix.py rows --data DIR --bank DIR --grown DIR --out FILE
    python benchmarks/tlp_mix.py trees --data DIR --bank DIR --out FILE

`choose` looks at folds 0-2 only and writes the choice into `tlp_frozen.json`; `rows` then judges
all five folds of the chosen mix, once. The first networks of a bank are trunks, the rest see the
physical features alone; `--grown` has what the default model's trees say (`bank-grown`).
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
from tensorese.models.trees import CERTAIN, SLOWEST
from tensorese.training.recipe import TREES
from tlp_bank import Banked, load_bank
from tlp_runs import encoded_of, judge_scores, programs_of, shaken_figures, task_sides
from tlp_stages import FROZEN
from tlp_third import FOLDS

Floats = npt.NDArray[np.float64]
JITTERS = (0.0, 0.2, 0.3, 0.4, 0.6)
TREE_JITTERS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.15, 0.3, 0.6, 1.0)
"""Trees of regression score in labels, those of ranking on a scale of their own."""
CANDIDATES = ((1, 4, 0), (1, 8, 0), (1, 0, 1), (1, 0, 2), (1, 4, 5))
"""Trunks, physical networks and votes of trees that reach the wanted speed."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    trunks: int
    physics: int
    votes: int = 0
    doubt: float = 0.0

    @property
    def name(self) -> str:
        more = f" + trees of {self.votes} votes" if self.votes else ""
        return f"{self.trunks} + {self.physics}{more}{f', doubt {self.doubt:g}' * (self.doubt > 0)}"

    def join(self, scores_nm: Floats, trunks: int, share_n: Floats | None = None) -> Floats:
        """As `TLP.rank` without lots."""
        each = [scores_nm[:, : self.trunks], scores_nm[:, trunks : trunks + self.physics]]
        if self.votes and share_n is not None:
            share = np.clip(share_n, SLOWEST, CERTAIN)
            each.append(np.repeat(np.log(share / (1 - share))[:, None], self.votes, axis=1))
        together = np.concatenate(each, axis=1)
        out: Floats = together.mean(1) - self.doubt * together.std(1)
        return out


def grown_shares(folder: Path) -> dict[tuple[str, int, int], Floats]:
    """What the trees say, by platform, fold and seed."""
    return {
        (one.platform, one.fold, one.seed): one.scores[:, 0]
        for path in sorted(folder.glob("bank_grown_*.npz"))
        for one in load_bank(path)[1]
    }


def banked(folder: Path, data: Path, keep: Callable[[Banked], bool]) -> Iterator[tuple[Any, ...]]:
    for path in sorted(folder.glob("bank_tlp_*.npz")):
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


def tried(args: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Mix and jitter, platform: mean top-1, top-5, steady, and the three thinned.

    Folds 0-2, many draws.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    shares = grown_shares(args.grown)
    for common, programs, one, held, index in banked(
        args.bank, args.data, lambda banked: banked.fold in FOLDS
    ):
        trunks = common["settings"]["members"]
        thin = np.isin(index, judged_index(programs, one.platform, held, thin=True))
        for setting in CANDIDATES:
            mix = Mix(trunks=setting[0], physics=setting[1], votes=setting[2])
            scores = mix.join(one.scores, trunks, shares[one.platform, one.fold, one.seed])
            for jitter in JITTERS:
                where = found.setdefault(f"{mix.name}, jitter {jitter:g}", {})
                mine = where.setdefault(one.platform, [])
                full = shaken_figures(programs, one.platform, index, scores, jitter)
                few = shaken_figures(programs, one.platform, index[thin], scores[thin], jitter)
                for task, f in full.items():
                    g = few.get(task, f)
                    mine.append((f[1] / f[2], f[1] / f[3], f[8], g[1] / g[2], g[1] / g[3], g[8]))
        print(one.platform, one.fold, one.seed, flush=True)
    return {
        name: {p: [round(float(x), 4) for x in np.mean(v, axis=0)] for p, v in where.items()}
        for name, where in found.items()
    }


def rule(where: dict[str, list[float]]) -> float:
    """Top-1 and top-5 of the whole lists, platforms weighing alike: what is asked for."""
    return float(np.mean([np.mean(figures[:2]) for figures in where.values()]))


def choose(args: argparse.Namespace) -> None:
    """The candidate and jitter with the best mean; all that was tried is kept."""
    table = tried(args)
    for name, where in table.items():
        cells = "  ".join(
            f"{p} {v[0]:.3f}/{v[1]:.3f} thin {v[3]:.3f}/{v[4]:.3f}" for p, v in where.items()
        )
        print(f"{rule(where):.4f} {np.mean(list(where.values())):.4f} {name}: {cells}")
    known = {
        f"{Mix(trunks=t, physics=p, votes=v).name}, jitter {jitter:g}": (t, p, v, jitter)
        for t, p, v in CANDIDATES
        for jitter in JITTERS
    }
    best = max(known, key=lambda name: rule(table[name]))
    frozen = json.loads(args.recipe.read_text())
    trunks, physics, votes, jitter = known[best]
    frozen["settings"] |= {"members": trunks, "physics_members": physics, "jitter": jitter}
    frozen["settings"] |= {"trees": TREES if votes else 0, "tree_votes": votes}
    frozen |= {"mix": best, "mixes": table}
    args.frozen.write_text(json.dumps(frozen, indent=1) + "\n")
    print(f"frozen: {best}")


def rows_of(args: argparse.Namespace) -> None:
    """Every fold and seed of the chosen mix, with the lots that the model itself draws."""
    chosen = json.loads(args.frozen.read_text())["settings"]
    votes = chosen["tree_votes"] if chosen["trees"] else 0
    mix = Mix(
        trunks=chosen["members"],
        physics=chosen["physics_members"],
        votes=votes,
        doubt=chosen["doubt"],
    )
    names = ("members", "physics_members", "trees", "tree_votes", "doubt", "jitter")
    told = {k: chosen[k] for k in names}
    shares = grown_shares(args.grown)
    with args.out.open("w") as file:
        for common, programs, one, held, index in banked(args.bank, args.data, lambda _: True):
            platforms = tuple(common["settings"]["platforms"])
            encoded = encoded_of(args.data, platforms, programs.spec())
            drawn = lots(torch.from_numpy(encoded.values[index])).double().numpy()
            share = shares[one.platform, one.fold, one.seed]
            plain = mix.join(one.scores, common["settings"]["members"], share)
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
                shaken = one.scores[:, 0] + best * drawn
                judged = judge_scores(programs, one.platform, held, index, shaken)
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
        if verb != "trees":
            sub.add_argument("--grown", type=Path, required=True)
        if verb != "choose":
            sub.add_argument("--out", type=Path, required=True)
        else:
            sub.add_argument("--recipe", type=Path, required=True, help="what freeze3 wrote")
    args = parser.parse_args()
    {"choose": choose, "rows": rows_of, "trees": tree_rows}[args.verb](args)


if __name__ == "__main__":
    main()
