"""Whole networks on this CPU: tuned once by `tensorese tune`, then timed against torch,
torch.compile, onnxruntime and OpenVINO on the same cores (`pip install -e '.[wild]'` has the last).

    python benchmarks/end_to_end.py check                      # can every system run them here?
    python benchmarks/end_to_end.py tune [--minutes 5] [--network resnet18 ...]
    python benchmarks/end_to_end.py time [--times 3]
    python benchmarks/end_to_end.py report

`tune` goes on where it stopped (run folders under runs/end_to_end). `time` adds a row a network,
system and time to results/end_to_end/MACHINE.jsonl; what is there is not run again. torch runs
channels_last. All systems are processes of their own, interleaved, with the tuned programs both on
weights packed at compile time and on weights as they came; `tune --no-prepack` adds a run whose
programs were chosen for weights as they came, `tune --no-winograd` one without that algorithm.
The roofline is the peak of the cores,
measured in the same minute. Run it on a quiet machine, or side by side on a machine with many
cores, two to a network: `end_to_end_device.sh`.

The ONNX files are those inside the onnx package, whose weights are all alike; they get seeded
random ones, or no system's outputs could be compared with another's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from common import ROOT, result_file
from end_to_end_networks import NETWORKS, Place

STARTED = time.time()


def check(places: list[Place]) -> None:
    """Front ends and rivals on each network, nothing tuned: what would stop a long run is known."""
    from tensorese.deploy.systems import RIVALS, System
    from tensorese.targets import Target
    from tensorese.workloads import load_network, tasks_of

    target = Target.parse("host").to_json()
    for place in places:
        began = time.time()
        network = load_network(place.model)
        inputs, tasks = network.example(0), tasks_of(network, target)
        notes = [f"{len(tasks)} tasks"]
        for name in RIVALS:
            try:
                system = System({"kind": name, "model": place.model, "threads": 2}, inputs)
                system.outputs()
                started = time.perf_counter()
                system.call()
                notes.append(f"{name} {1e3 * (time.perf_counter() - started):.1f} ms")
            except Exception as error:
                notes.append(f"{name} FAILS: {' '.join(str(error).split())[:300]}")
        print(f"{place.network}: {', '.join(notes)} ({time.time() - began:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("check", "tune", "time", "report", "all"))
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "end_to_end")
    parser.add_argument("--rows", type=Path, default=result_file("end_to_end", ".jsonl"))
    parser.add_argument("--lanes", nargs="+", default=[], help="cores of each network: 0,1 2,3")
    parser.add_argument("--cache", choices=("rotated", "hot"), default="rotated")
    parser.add_argument("--no-prepack", action="store_true", help="tune with weights as they came")
    parser.add_argument("--no-winograd", action="store_true", help="tune direct convolutions only")
    parser.add_argument("--until", type=float, default=86400.0, help="seconds `time` may take")
    args = parser.parse_args()
    places = [
        Place(
            work=args.work,
            network=name,
            minutes=args.minutes,
            seed=args.seed,
            prepack=not args.no_prepack,
            cache=args.cache,
            winograd=not args.no_winograd,
        )
        for name in args.network
    ]
    if args.step == "check":
        check(places)
    if args.step in ("tune", "all"):
        for place in places:
            place.tune()
            place.build()
    if args.step in ("time", "all"):
        from end_to_end_race import race

        until = STARTED + args.until
        lanes = [[int(core) for core in lane.split(",")] for lane in args.lanes]
        race(places, args.rows, times=args.times, lanes=lanes, until=until)
    if args.step in ("report", "all"):
        from end_to_end_report import report

        report(args.rows, args.minutes, args.seed)


if __name__ == "__main__":
    main()
