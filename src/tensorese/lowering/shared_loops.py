"""Parallel loops whose threads help each other.

TVM cuts a parallel loop into one piece a thread before it starts. Where something else slows one
core, as the neighbours of a virtual machine do, every kernel waits for that core. Here a thread
takes its own piece job by job, then what the others have not begun.

Jobs are handed out by an atomic counter a thread, on a cache line of its own. TIR has no atomics,
so the few instructions come as LLVM's own language; a library with them needs stock TVM, no more.
"""

from __future__ import annotations

import importlib
from typing import Any

from tensorese.lowering.rewriter import LoopRewriter

_TAKE = "tensorese_take"
# Looking first keeps a line that is used up shared among those who come to look.
_LLVM = f"""
define i32 @{_TAKE}(ptr %next, i32 %end) {{
  %seen = load atomic i32, ptr %next monotonic, align 4
  %some = icmp slt i32 %seen, %end
  br i1 %some, label %take, label %none
take:
  %job = atomicrmw add ptr %next, i32 1 monotonic
  ret i32 %job
none:
  ret i32 %end
}}
"""
_IMPORT = "pragma_import_llvm"
_LINE = 16  # numbers on a cache line
_JOBS = 32  # of a thread; longer loops are handed out several iterations at a time
_LEAST = 1 << 15  # stores, some 8 microseconds: shorter loops lose up to half a microsecond


def share(tvm: Any) -> Any:
    """The pass, for lowered host functions of a target that says how many cores it has."""

    def change(function: Any, *_: Any) -> Any:
        threads = _threads(function)
        if threads < 2:
            return function
        return function.with_body(Shares(tvm, threads).within(function.body))

    return tvm.tirx.transform.prim_func_pass(change, opt_level=0, name="tensorese.ShareLoops")


def _threads(function: Any) -> int:
    target = function.attrs.get("target") if function.attrs else None
    if target is None or str(target.kind) != "llvm":
        return 0
    return int(target.attrs.get("num-cores", 0))


class Shares(LoopRewriter):
    """The loop over threads that takes a parallel loop's place."""

    def __init__(self, tvm: Any, threads: int) -> None:
        super().__init__(tvm)
        self.threads = threads
        self.text = importlib.import_module("tvm.ir").StringImm(_LLVM)

    def loop(self, node: Any) -> Any | None:
        if node.kind != self.stmt.ForKind.PARALLEL:
            return None
        numbers = self.tirx.IntImm
        fixed = isinstance(node.extent, numbers) and isinstance(node.min, numbers)
        if not fixed or str(node.loop_var.ty) != "int32" or int(node.extent) <= self.threads:
            return node
        return self._shared(node) if self._stores(node) >= _LEAST else node

    def _stores(self, node: Any) -> int:
        """How many stores run, as far as constants say; a loop of unknown length counts as long."""
        stmt = self.stmt
        if isinstance(node, stmt.For):
            known = isinstance(node.extent, self.tirx.IntImm)
            return (int(node.extent) if known else _LEAST) * self._stores(node.body)
        if isinstance(node, stmt.SeqStmt):
            return sum(map(self._stores, node.seq))
        if isinstance(node, stmt.AttrStmt):
            return self._stores(node.body)
        if isinstance(node, stmt.IfThenElse):
            other = node.else_case
            return max(self._stores(node.then_case), 0 if other is None else self._stores(other))
        return int(isinstance(node, stmt.BufferStore | stmt.Evaluate))

    def _shared(self, node: Any) -> Any:
        tirx, stmt, threads = self.tirx, self.stmt, self.threads
        together = max(1, int(node.extent) // (threads * _JOBS))
        jobs = -(-int(node.extent) // together)
        following = tirx.decl_buffer((threads * _LINE,), "int32", name="following")
        first = [
            stmt.BufferStore(following, self._int(jobs * owner // threads), [owner * _LINE])
            for owner in range(threads)
        ]
        thread, turn, owner = (tirx.Var(name, "int32") for name in ("thread", "turn", "owner"))
        job = tirx.decl_buffer((1,), "int32", name="job", scope="local")
        end = tirx.truncdiv(jobs * (owner + 1), threads)
        counter = tirx.address_of(following[owner * _LINE])
        take = stmt.BufferStore(job, tirx.call_extern("int32", _TAKE, counter, end), [0])
        work = stmt.While(job[0] < end, stmt.SeqStmt([self._job(node, job[0], together), take]))
        whose = stmt.Bind(owner, tirx.truncmod(thread + turn, threads))
        pieces = self._loop(turn, stmt.ForKind.SERIAL, stmt.SeqStmt([whose, take, work]))
        body = stmt.SeqStmt([stmt.AllocBuffer(job), pieces])
        launch = self._loop(thread, stmt.ForKind.PARALLEL, body)
        with_take = stmt.AttrStmt(following.data, _IMPORT, self.text, launch)
        return stmt.SeqStmt([stmt.AllocBuffer(following), *first, with_take])

    def _job(self, node: Any, job: Any, together: int) -> Any:
        """The iterations of one job."""
        tirx, stmt = self.tirx, self.stmt
        if together == 1:
            return stmt.SeqStmt([stmt.Bind(node.loop_var, job + node.min), node.body])
        step = tirx.Var("step", "int32")
        begun = job * together
        number = tirx.min(self._int(together), int(node.extent) - begun)
        iteration = stmt.Bind(node.loop_var, begun + step + node.min)
        body = stmt.SeqStmt([iteration, node.body])
        return stmt.For(step, self._int(0), number, stmt.ForKind.SERIAL, body)

    def _loop(self, variable: Any, kind: Any, body: Any) -> Any:
        return self.stmt.For(variable, self._int(0), self._int(self.threads), kind, body)

    def _int(self, value: int) -> Any:
        return self.tirx.const(value, "int32")
