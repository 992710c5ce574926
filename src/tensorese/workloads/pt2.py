"""Reads a `torch.export` archive without ever unpickling what it could smuggle in.

`torch.export.load` unpickles weights and constants that say so, custom objects, and example
inputs that fail to load safely; an archive may also hold native code. Every member is checked
against what a plain archive holds, before torch sees the file, and read for that by torch's own
reader of archives, so that both see the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tensorese.workloads.errors import NetworkError, first_line
from tensorese.workloads.pt2_graph import check_json

PICKLE_REFUSED = (
    "holds a pickle (torch.save), which runs code when read and is never loaded; "
    "save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
)
_GRAPH = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_CONFIGS = {
    "data/weights/model_weights_config.json": "weight_",
    "data/constants/model_constants_config.json": "tensor_",
}
_READ = {_GRAPH, _SAMPLES, *_CONFIGS}
_PLAIN = re.compile(
    r"archive_(format|version)|byteorder|version|\.data/\w+|\.format_version"
    r"|\.storage_alignment|data/weights/weight_\d+|data/constants/tensor_\d+|extra/.*"
)


def load(path: Path) -> Any:
    """The archive's `ExportedProgram`."""
    with path.open("rb") as file:
        _audit(path, file)
        file.seek(0)
        import torch

        try:
            return torch.export.load(file)
        except Exception as error:
            line = first_line(error)
            raise NetworkError(
                f"{path} is no torch.export archive this torch reads: {line}"
            ) from None


def _audit(path: Path, file: io.BufferedReader) -> None:
    _check_members(path, file)
    file.seek(0)
    import torch

    try:
        reader: Any = torch._C.PyTorchFileReader(file)
        names = list(reader.get_all_records())
        members = {name: reader.get_record(name) for name in names if name in _READ}
    except (RuntimeError, UnicodeError) as error:  # its own messages may hold the file's bytes
        raise NetworkError(f"{path} is no archive torch reads: {first_line(error)}") from None
    for name, data in members.items():
        if name == _SAMPLES:
            _check_samples(path, data)
            continue
        if name in _CONFIGS:
            _check_config(path, data, _CONFIGS[name])
        if check_json(path, data) and importlib.util.find_spec("transformers"):
            importlib.import_module("transformers.modeling_outputs")


def _check_members(path: Path, file: io.BufferedReader) -> None:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, OverflowError, ValueError, OSError) as error:
        raise NetworkError(f"{path} is a broken zip archive ({error}); export it again") from None
    with archive:
        names = archive.namelist()
        packed = any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist())
        size = sum(one.file_size for one in archive.infolist())
    root = names[0].partition("/")[0] + "/" if names else ""
    if f"{root}data.pkl" in names:
        raise NetworkError(f"{path} {PICKLE_REFUSED}")
    if f"{root}{_GRAPH}" not in names:
        raise NetworkError(f"{path} is a zip archive but no torch.export one (.pt2)")
    # torch packs nothing, and what is packed may be far larger than the file.
    if packed or size > path.stat().st_size:
        raise NetworkError(f"{path} holds packed members; export it again with torch.export.save")
    # Two readers may disagree on which of two equal names counts.
    if len({name.lower() for name in names}) != len(names):
        raise NetworkError(f"{path} names a member twice; export it again")
    for name in names:
        inner = name.removeprefix(root)
        if not name.startswith(root) or not (inner in _READ or _PLAIN.fullmatch(inner)):
            what = "only weights, constants and a graph are read"
            raise NetworkError(f"{path} holds {inner!r}: {what}; export it with torch.export")


def _check_config(path: Path, text: bytes, prefix: str) -> None:
    try:
        payloads = json.loads(text)["config"]
        raw = all(
            p["use_pickle"] is False and p["path_name"].startswith(prefix)
            for p in payloads.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NetworkError(
            f"{path} is damaged: a weight list is unreadable; export again"
        ) from None
    if not raw:
        raise NetworkError(f"{path} {PICKLE_REFUSED}")


def _check_samples(path: Path, data: bytes) -> None:
    """torch falls back to a full unpickling when the safe one fails: so it must not fail."""
    import torch

    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        raise NetworkError(f"{path} {PICKLE_REFUSED}") from None
