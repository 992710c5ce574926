from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.errors import StoreError
from tensorese.records.journal import (
    FileLock,
    JournalReader,
    JournalWriter,
    decode_line,
    encode_line,
)

pytestmark = pytest.mark.null

ENTRIES = [{"kind": "measurement", "row": {"id": str(n)}} for n in range(4)]


def dead_journal(folder: Path) -> Path:
    writer = JournalWriter(folder)
    writer.write(ENTRIES)
    writer.close()
    return writer.path


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.booleans())))
def test_a_line_is_one_line_and_reads_back(entry: dict[str, Any]) -> None:
    line = encode_line(entry)
    assert line.count(b"\n") == 1
    assert decode_line(line[:-1]) == entry


@given(st.integers(0, 200), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, flip: int) -> None:
    line = bytearray(encode_line(ENTRIES[0])[:-1])
    line[position % len(line)] ^= flip
    assert decode_line(bytes(line)) is None


def test_entries_are_visible_before_the_writer_closes(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    reader = JournalReader(writer.path)
    writer.write(ENTRIES[:2])
    assert reader.refresh() == ENTRIES[:2]
    writer.write(ENTRIES[2:])
    assert reader.refresh() == ENTRIES[2:]


def test_a_torn_tail_is_cut_off_and_reported(tmp_path: Path) -> None:
    path = dead_journal(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_line(ENTRIES[0])[:-9])
    reader = JournalReader(path)
    assert reader.refresh() == ENTRIES
    assert path.read_bytes() == whole
    assert [str(problem) for problem in reader.problems] == [
        f"{path.name}:5: torn last line of {len(encode_line(ENTRIES[0])) - 9} bytes cut off "
        "(its writer died mid-line)"
    ]


def test_half_a_line_of_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    path = dead_journal(tmp_path)
    half = path.read_bytes() + b"0123"
    path.write_bytes(half)
    with FileLock(path, create=False):
        reader = JournalReader(path)
        assert reader.refresh() == ENTRIES
    assert path.read_bytes() == half
    assert reader.problems == []


def test_a_corrupt_middle_line_is_skipped_counted_and_named(tmp_path: Path) -> None:
    path = dead_journal(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"1"', b'"9"')
    path.write_bytes(b"".join(lines))
    reader = JournalReader(path)
    assert reader.refresh() == [ENTRIES[0], *ENTRIES[2:]]
    assert reader.corrupt == 1
    assert str(reader.problems[0]).startswith(f"{path.name}:2: corrupt line skipped")


def test_a_full_disk_costs_only_the_refused_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path)
    writer.write(ENTRIES[:1])
    real_write = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) > 10:
            return real_write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="free disk space") as refusal:
        writer.write([{"kind": "measurement", "row": {}}])
    assert "\n" not in str(refusal.value)
    monkeypatch.undo()
    writer.write(ENTRIES[1:])
    assert JournalReader(writer.path).refresh() == ENTRIES


def test_an_unused_journal_leaves_no_file(tmp_path: Path) -> None:
    JournalWriter(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
