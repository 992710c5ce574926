"""Which program links for a target, and what is said where it is missing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tensorese.measure.faults import MachineFault
from tensorese.measure.linking import link, linker_for

pytestmark = pytest.mark.null

OTHER = "riscv64" if os.uname().machine == "aarch64" else "aarch64"


def target(triple: str) -> str:
    return json.dumps({"kind": "llvm", "mtriple": triple})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str) -> str:
    """A linker that writes down what it was asked."""
    path = folder / name
    code = "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write(' '.join(sys.argv[1:]))"
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    return str(path)


def test_what_runs_here_is_linked_by_this_machines_linker(programs: Path) -> None:
    with pytest.raises(MachineFault, match="needs ld or gcc"):
        linker_for('{"kind":"cuda"}')
    gcc = install(programs, "gcc")
    assert linker_for('{"kind":"llvm","num-cores":2}') == [gcc]
    ld = install(programs, "ld")
    assert linker_for(target(f"{os.uname().machine}-unknown-linux-gnu")) == [ld]


@pytest.mark.parametrize("triple", [f"{OTHER}-linux-gnu", f"{OTHER}-unknown-linux-gnu"])
def test_another_architecture_by_its_cross_compiler(triple: str, programs: Path) -> None:
    install(programs, "ld")
    debian = f"{OTHER}-linux-gnu"
    with pytest.raises(MachineFault) as refused:
        linker_for(target(triple))
    assert str(refused.value) == (
        f"linking for {triple} needs {debian}-gcc, but PATH does not name it; "
        f"apt-get install gcc-{debian}"
    )
    gcc = install(programs, f"{debian}-gcc")
    assert linker_for(target(triple)) == [gcc, "-nostdlib", "-lgcc"]


def test_a_library_of_it_is_complete(programs: Path, tmp_path: Path) -> None:
    class Compiled:
        imports: tuple[object, ...] = ()

        def write_to_file(self, path: str, _: str) -> None:
            Path(path).touch()

    install(programs, f"{OTHER}-linux-gnu-gcc")
    made = tmp_path / "a.so"
    link(Compiled(), str(made), target(f"{OTHER}-linux-gnu"))
    # What the compiler calls comes after who needs it.
    assert made.read_text() == f"-shared -o {made} {made}.o -nostdlib -lgcc"
    assert not (tmp_path / "a.so.o").exists()
