"""Faults of the machine: they say nothing about the program that met them, and somebody can mend
them. None becomes a label."""

from __future__ import annotations

import os
from pathlib import Path

from tensorese.errors import MeasureError
from tensorese.records.nouns import Measurement, Status

EXIT_CODE = 78
"""Of a worker that cannot work on this machine; its last words say why."""

_ROOM = "free some space where temporary files go, or set TMPDIR to a folder with more"
_RIGHTS = "set TMPDIR to a folder where you may write and run programs"
_REMEDIES = {
    "No space left on device": _ROOM,
    "Disk quota exceeded": _ROOM,
    "Read-only file system": _RIGHTS,
    "Permission denied": _RIGHTS,
    "failed to map segment": _RIGHTS,
    "cannot open shared object file": "nothing must remove the farm's files while it works",
    "file too short": _ROOM,
    "Too many open files": "raise `ulimit -n`",
    "Resource temporarily unavailable": "raise `ulimit -u`",
}
_LEAST_BYTES = 1 << 20
_MOST_IN_A_ROW = 8


class MachineFault(MeasureError):
    """Something that programs need is missing here; the text names the remedy."""


def machine_fault(error: BaseException | str) -> str:
    """What is wrong and what helps; empty where the program is to blame."""
    if isinstance(error, MachineFault):
        return str(error)
    text = " ".join(str(error).split())
    remedy = next((help_ for needle, help_ in _REMEDIES.items() if needle in text), "")
    return f"{text[-300:]}; {remedy}" if remedy else ""


def full_disk(folder: Path) -> str:
    """The same for a folder that can take nothing more: who dies of that cannot always say so."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be read ({error.strerror}); {_RIGHTS}"
    if disk.f_bavail * disk.f_frsize >= _LEAST_BYTES:
        return ""
    return f"{folder} is full; {_ROOM}"


class FaultsInARow:
    """Ends a run on a machine where nothing works; one program that kills it again and again
    does not."""

    def __init__(self) -> None:
        self.count = 0

    def see(self, measurement: Measurement) -> None:
        if measurement.status is not Status.INFRA_ERROR:
            self.count = 0
            return
        self.count += 1
        if self.count >= _MOST_IN_A_ROW:
            raise MachineFault(
                f"programs must build and run here, but {self.count} in a row met a fault of the "
                f"machine: {measurement.error.strip()}. Nothing is lost: mend it and start the "
                "same command again"
            )
