"""A tuning run over stored measurements, slow enough to be killed; its folder is the argument."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.replay import ReplayMeasurer
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.tune_tasks import tune_tasks
from tensorese.search.rankers.online import OnlineRanker
from tuning_support import PLATFORM, TARGET, every_measurement, matmul_task


class Slowly(ReplayMeasurer):
    """Stores one measurement after another with a pause between them."""

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket = Ticket(len(candidates))
        for index, candidate in enumerate(candidates):
            time.sleep(0.01)
            for _, measurement in super().submit([candidate]):
                ticket.put((index, measurement))
        return ticket


def main() -> None:
    tasks = [matmul_task(8, weight=3), matmul_task(4, 8), matmul_task(8, 2)]
    with Slowly(every_measurement(tasks), PLATFORM) as measurer:
        tune_tasks(
            tasks,
            target=TARGET,
            platform=PLATFORM,
            measurer=measurer,
            ranker=OnlineRanker(),
            out=Path(sys.argv[1]),
            config=TuneConfig(trials=160, batch=8, seed=3),
            model="made up",
            network="three",
        )


if __name__ == "__main__":
    main()
