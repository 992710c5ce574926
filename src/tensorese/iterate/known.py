"""What a run knows when it learns and writes: its finished rounds, and the records of `--data`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorese.features.programs import ProgramSet, read_programs
from tensorese.iterate.folder import STORE, Batch, IterationFolder
from tensorese.records.nouns import Platform, program_id
from tensorese.records.store import Store
from tensorese.search.contracts import DecisionRow
from tensorese.space.space import TaskSpace


class Known:
    def __init__(self, folder: IterationFolder, platform: Platform) -> None:
        self.folder, self.platform = folder, platform
        self.data = [Store.open(Path(path)) for path, _ in folder.head["data"]]

    def programs(self, rounds: int) -> ProgramSet | None:
        """With the labels of the first so many rounds and of `--data`; None where none is valid."""
        own = _OfRounds(self.folder.path / STORE, _ids(self.folder.batches(rounds)))
        stores = [*self.data, own]
        name = self.platform.name
        if not any(name in store.platforms() for store in stores):
            return None
        if not any(store.table(["platform"]).num_rows for store in stores):
            return None
        programs = read_programs(stores, platforms=(name,))
        return programs if np.isfinite(programs.latency).any() else None

    def rows(
        self, workload: str, space: TaskSpace, earlier: Sequence[Batch]
    ) -> Iterator[tuple[int, DecisionRow]]:
        """That were written before, or are measured in `--data`."""
        places = {sketch.sketch.id: index for index, sketch in enumerate(space.sketches)}
        for batch in earlier:
            for task, rows in batch.rows:
                if task == workload:
                    yield from ((places[r.sketch], r.row) for r in rows if r.sketch in places)
        for sketch, row in self._measured.get(workload, ()):
            if sketch in places:
                yield places[sketch], row

    @cached_property
    def _measured(self) -> dict[str, list[tuple[str, DecisionRow]]]:
        """Sketches and decisions of what `--data` holds for training, by workload."""
        columns = ["workload_id", "sketch_id", "decisions"]
        found: dict[str, list[tuple[str, DecisionRow]]] = {}
        for store in self.data:
            if self.platform.name in store.platforms():
                table = store.table(columns, platform=self.platform.name, split="train")
                listed = (table[name].to_pylist() for name in columns)
                for workload, sketch, row in zip(*listed, strict=True):
                    found.setdefault(workload, []).append((sketch, tuple(row)))
        return found


class _OfRounds(Store):
    """The run's store without the batch that is being measured meanwhile: what is learnt must not
    depend on how far that is. Test rows count: the run was asked to tune their tasks."""

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        super().__init__(path)
        self._ids = pa.array(ids, pa.string())

    def table(self, columns: Sequence[str] | None = None, **filters: Any) -> Any:
        wanted = None if columns is None else [*dict.fromkeys([*columns, "program_id"])]
        table = super().table(wanted, **{**filters, "split": "all"})
        return table.filter(pc.is_in(table["program_id"], value_set=self._ids))


def _ids(batches: Sequence[Batch]) -> list[str]:
    return [
        program_id(task, row.sketch, row.row)
        for batch in batches
        for task, rows in batch.rows
        for row in rows
    ]
