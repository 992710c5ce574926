"""Mutation testing of the rules that matter most: each is broken in one place, and tests must fail.

python tools/mutants.py [--only RULE]

Every mutant is one edit of one file in a copy of the source, with the tests that should kill it.
Prints a table and writes benchmarks/results/mutants/MACHINE.json; ends with 1 if one survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))


@dataclass(frozen=True)
class Mutant:
    rule: str
    file: str
    """Below src/tensorese."""
    before: str
    """Stands in the file exactly once."""
    after: str
    tests: str


LOSSES, TUNER = "tests/training/test_losses.py", "tests/search/loop/test_tuner.py"
STORE, LIMITS = "tests/records/test_store.py", "tests/space/test_limits.py"
VERDICT, BASE = "tests/measure/test_reference_verdict.py", "tests/models/test_base.py"

MUTANTS = (
    Mutant(
        "rank loss",
        "training/losses.py",
        "F.softplus(scores[..., None, :] - scores[..., :, None])",
        "F.softplus(scores[..., :, None] - scores[..., None, :])",
        LOSSES,
    ),
    Mutant(
        "rank loss",
        "training/losses.py",
        "gain = torch.exp2(labels) - 1.0",
        "gain = labels",
        LOSSES,
    ),
    Mutant(
        "masks",
        "training/losses.py",
        "scores = scores_GN.masked_fill(~valid_GN, -1e4)  # far",
        "scores = scores_GN  # far",
        LOSSES,
    ),
    Mutant(
        "masks",
        "models/tlm.py",
        "hide = torch.where(prompts.real_PT, 0.0, _MASKED)[:, None, None, :]",
        "hide = torch.zeros_like(prompts.real_PT, dtype=torch.float)[:, None, None, :]",
        "tests/models/test_tlm.py",
    ),
    Mutant(
        "legality",
        "space/limits.py",
        "self.used(rows) <= self.limit",
        "self.used(rows) > 0",
        LIMITS,
    ),
    Mutant(
        "legality",
        "space/decisions.py",
        "held &= slot.holds(rows)",
        "held |= slot.holds(rows)",
        "tests/space/test_decisions.py",
    ),
    Mutant(
        "legality",
        "space/limits.py",
        "return np.minimum(total, self.cap)",
        "return total",
        f"{LIMITS} tests/space/test_audit.py",
    ),
    Mutant(
        "checksum",
        "records/journal.py",
        'checksum != b"%08x" % zlib.crc32(text)',
        "len(checksum) != 8",
        "tests/records/test_journal.py",
    ),
    Mutant(
        "checksum",
        "models/base.py",
        'hashlib.sha256(data).hexdigest() != config.get("weights_sha256")',
        'not config.get("weights_sha256")',
        BASE,
    ),
    Mutant(
        "checksum",
        "deploy/library.py",
        "if sha256(path) != wanted:",
        "if not wanted:",
        "tests/deploy/test_compile_run.py -k changed",
    ),
    Mutant(
        "platform filter",
        "records/contents.py",
        'pc.equal(table["platform"], platform), pc.equal',
        'pc.is_valid(table["platform"]), pc.equal',
        STORE,
    ),
    Mutant(
        "platform filter",
        "measure/replay.py",
        "if measurement.platform.name == name and _may_answer",
        "if _may_answer",
        "tests/measure/test_replay.py",
    ),
    Mutant(
        "held-out rows",
        "records/store.py",
        'return table.filter(pc.not_equal(table["split"], "test"))',
        "return table",
        STORE,
    ),
    Mutant(
        "held-out rows",
        "evaluation/splits.py",
        "if name in train or same in canonical:",
        "if name in train:",
        "tests/evaluation/test_splits.py",
    ),
    Mutant(
        "tolerance",
        "measure/reference/verdict.py",
        "return eps * (constant + 2.0 * ",
        "return eps * (constant + 200.0 * ",
        VERDICT,
    ),
    Mutant(
        "tolerance",
        "measure/reference/verdict.py",
        "close | (np.isnan(a) & np.isnan(b))",
        "close | np.isnan(a)",
        VERDICT,
    ),
    Mutant(
        "tolerance",
        "measure/reference/verdict.py",
        "good = got == want",
        "good = a == b",
        VERDICT,
    ),
    Mutant(
        "resume",
        "search/loop/tuner.py",
        "self._first_new = max(numbers, default=-1) + 1",
        "self._first_new = len(self.folder.batches)",
        TUNER,
    ),
    Mutant(
        "resume",
        "search/loop/tuner.py",
        "                self.tasks[index].proposed += 1\n",
        "",
        TUNER,
    ),
    Mutant(
        "resume",
        "search/loop/tuner.py",
        "if i not in known]",
        "]",
        TUNER,
    ),
    Mutant(
        "faults are no labels",
        "records/contents.py",
        'if row["status"] != Status.INFRA_ERROR:',
        "if row:",
        STORE,
    ),
    Mutant(
        "faults are no labels",
        "search/loop/tuner.py",
        "tried = [r.status is not Status.INFRA_ERROR for r in results]",
        "tried = [True for r in results]",
        "tests/search/loop/test_faults_of_the_machine.py",
    ),
    Mutant(
        "one user at a time",
        "records/claims.py",
        "if mine is not None and mine.thread == threading.get_ident():",
        "if mine is not None:",
        "tests/records/test_claims.py",
    ),
    Mutant(
        "disagreement",
        "search/rankers/guided.py",
        "each.mean(1) - DOUBT * each.std(1)",
        "each.mean(1) + DOUBT * each.std(1)",
        "tests/search/rankers/test_guided.py",
    ),
    Mutant(
        "sizes of models",
        "models/network.py",
        "if wanted != {name: tensor.shape for name, tensor in tensors.items()}:",
        "if not wanted:",
        "tests/models/test_contract.py",
    ),
    Mutant(
        "the best is the fastest",
        "records/contents.py",
        "latency < fastest[name][0]",
        "latency > fastest[name][0]",
        STORE,
    ),
    Mutant(
        "the best is the fastest",
        "search/loop/finalists.py",
        "statistics.median(times) if times",
        "min(times) if times",
        "tests/search/loop/test_finalists.py",
    ),
)


def judged(mutants: tuple[Mutant, ...]) -> Iterator[tuple[Mutant, str]]:
    """`killed` or `survived`; tests that fail without a mutant prove nothing and are an error."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        source = Path(place) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        sound: set[str] = set()
        for mutant in mutants:
            if mutant.tests not in sound and _passed(source, mutant.tests) is False:
                raise SystemExit(f"{mutant.tests} fails without a mutant")
            sound.add(mutant.tests)
            yield mutant, "survived" if _survives(source, mutant) else "killed"


def _survives(source: Path, mutant: Mutant) -> bool:
    path = source / "tensorese" / mutant.file
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise SystemExit(f"{mutant.file} must have {mutant.before!r} once")
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        return _passed(source, mutant.tests)
    finally:
        path.write_text(text)


def _passed(source: Path, tests: str) -> bool:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    # What lies beside the source, as the published records do, is looked for from there.
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [*command, "-m", "not slow", *tests.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tests} cannot be run: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.returncode == 0


def main() -> int:
    from common import write_result

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mutants of this rule or file")
    wanted = parser.parse_args()
    chosen = tuple(m for m in MUTANTS if wanted.only in f"{m.rule} {m.file}")
    rows = []
    for mutant, verdict in judged(chosen):
        rows.append({**asdict(mutant), "verdict": verdict})
        print(f"{verdict:<10}{mutant.rule:<26}{mutant.file:<32}{mutant.after.strip()}", flush=True)
    alive = sum(row["verdict"] == "survived" for row in rows)
    print(f"{len(rows) - alive} of {len(rows)} mutants killed")
    if len(chosen) == len(MUTANTS):
        print(write_result("mutants", {"killed": len(rows) - alive, "mutants": rows}))
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
