"""A build worker: schedules in, linked shared objects out, compiled inside this process."""

from __future__ import annotations

import base64
import functools
import gc
import json
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tensorese import lowering
from tensorese.identity import plain
from tensorese.language.metaschedule import cut_tail
from tensorese.measure import nvrtc
from tensorese.measure.faults import machine_fault
from tensorese.measure.linking import link
from tensorese.measure.wire import Message, receive, send
from tensorese.targets import Target

MAX_ERROR = 2000  # characters of an error text worth keeping


def serve(connection: Connection, settings: Message) -> None:
    if settings["kind"] == "cuda":
        nvrtc.install()
    gc.disable()  # what TVM leaves behind is reference-counted; growth gets a worker replaced
    while True:
        job = receive(connection)
        send(connection, lower(job) if job.get("lower") else build(job))


def warm_up(kind: str) -> None:
    """Builds a real kernel, so that forked workers find LLVM and TVM's passes initialised."""
    if kind == "llvm":
        cpu = tvm.target.codegen.llvm_get_system_cpu()
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
        with tempfile.TemporaryDirectory() as folder:
            compile_module(sentinel_module(kind), target).write_to_file(f"{folder}/x.o", "o")


def compile_module(module: Any, target: Any) -> Any:
    """TVM's own build, less what costs time and changes nothing in the computing code.

    LLVM spends an eighth of a build on the calling wrapper's argument checks, and runners pass
    what the program declares. `RemoveNoOp` takes another twentieth on unrolled loops and finds
    nothing LLVM would not: object code is the same, instruction by instruction.
    """
    config = lowering.pass_config(target.kind.name)
    context = tvm.transform.PassContext(
        opt_level=3, config=config, disabled_pass=["tirx.RemoveNoOp"]
    )
    with target, context:  # nvrtc asks for a target
        return tvm.build(module, target=target)


def build(job: Message) -> Message:
    """Never raises for the candidate's fault; `status` is `ok`, `invalid` or `build_error`."""
    started = time.perf_counter()
    reply: Message = {"job": job["job"], "status": "ok", "error": ""}
    try:
        scheduled, tail = load_scheduled(job)
        reply |= {"tail": tail} if tail else {}
    except Exception as error:
        reply |= {"status": "invalid", "error": short(error)}
    else:
        try:
            stripped = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(scheduled)
            reply["args"] = argument_specs(stripped)
            library = compile_module(stripped, tvm.target.Target(json.loads(job["target"])))
            link(library, job["artifact"], job["target"])
        except Exception as error:
            fault = machine_fault(error)
            status = "infra_error" if fault else "build_error"
            reply |= {"status": status, "error": fault or short(error)}
    reply["secs"] = time.perf_counter() - started
    reply["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return reply


def lower(job: Message) -> Message:
    """Features of the lowered program; never raises for the program's fault."""
    from tensorese.features.lowered import LowerStatus, store_rows  # only for jobs that lower

    reply: Message = {"job": job["job"], "status": LowerStatus.OK, "error": ""}
    try:
        schedule = _lowerable(job)
    except Exception as error:
        reply |= {"status": LowerStatus.INVALID, "error": short(error)}
    else:
        try:
            rows = store_rows(_rules(job["workload"], job["target"])[0], schedule)
            reply["rows"] = base64.b64encode(rows.astype("<f4").tobytes()).decode()
            if not len(rows):
                reply["status"] = LowerStatus.NO_ROWS
        except Exception as error:
            reply |= {"status": LowerStatus.LOWER_ERROR, "error": short(error)}
    reply["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return reply


def _lowerable(job: Message) -> Any:
    """The schedule as it would be built, but for the postprocessors that only judge: the one of
    CUDA lowers the whole program to do so."""
    if not job["workload"]:
        raise ValueError("a program without a module of TVM cannot be lowered")
    _, unscheduled, rewriters = _rules(job["workload"], job["target"])
    schedule = unscheduled.copy()
    if job["trace"]:
        tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(job["trace"]), schedule)
    if job["postprocess"]:
        schedule.enter_postproc()
        if not all(one.apply(schedule) for one in rewriters):
            raise ValueError("a postprocessor refused the schedule on this target")
    return schedule


@functools.lru_cache(maxsize=16)
def _rules(workload: str, target: str) -> tuple[Any, Any, list[Any]]:
    """A workload's context, its schedule before anything is done to it, and its rewriters."""
    from tensorese.space.replay import VERIFIERS, tune_context

    module = read_workload(workload)
    context = tune_context(module, Target.from_json(target))
    postprocessors = context.space_generator.postprocs
    rewriters = [one for one in postprocessors if type(one).__name__ not in VERIFIERS]
    return context, tvm.s_tir.Schedule(module), rewriters


def load_module(job: Message) -> Any:
    """The scheduled module: as sent, or replayed from its trace on the workload."""
    return load_scheduled(job)[0]


def load_scheduled(job: Message) -> tuple[Any, str]:
    """The module, and the tail of its trace where it was postprocessed here."""
    if job.get("sentinel"):
        return sentinel_module(json.loads(job["target"])["kind"]), ""
    if job["module"]:
        return tvm.ir.load_json(job["module"]), ""
    workload = read_workload(job["workload"])
    if not job["trace"]:
        return workload, ""
    schedule = tvm.s_tir.Schedule(workload)
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(job["trace"]), schedule)
    tail = postprocess(schedule, Target.from_json(job["target"])) if job.get("postprocess") else ""
    return schedule.mod, tail


@functools.lru_cache(maxsize=16)
def read_workload(text: str) -> Any:
    """TVM takes 8 ms over it, and every candidate of a task comes with the same one."""
    return tvm.ir.load_json(text)


def postprocess(schedule: Any, target: Target) -> str:
    """What stock MetaSchedule does to a schedule before it is built for the target."""
    from tensorese.space.replay import stock_postprocessors  # numpy and all: only when needed

    postprocessors = stock_postprocessors(schedule.mod, target)
    schedule.enter_postproc()
    if not all(one.apply(schedule) for one in postprocessors):
        raise ValueError("a postprocessor refused the schedule on this target")
    return cut_tail(plain(schedule.trace.as_json()))[1]


def sentinel_module(kind: str) -> Any:
    """A matrix product of about a millisecond that uses every core, or many GPU blocks."""
    n = 192
    a, b = tvm.te.placeholder((n, n), name="a"), tvm.te.placeholder((n, n), name="b")
    k = tvm.te.reduce_axis((0, n), name="k")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = tvm.s_tir.Schedule(tvm.te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    i, j, reduction = schedule.get_loops(block)
    if kind == "llvm":
        schedule.reorder(i, reduction, j)
        schedule.parallel(i)
        schedule.vectorize(schedule.split(j, [None, 16])[1])
        schedule.decompose_reduction(block, reduction)
    else:
        schedule.bind(i, "blockIdx.x")
        schedule.bind(j, "threadIdx.x")
    return schedule.mod


def argument_specs(module: Any) -> list[tuple[list[int], str]]:
    """Shapes and dtypes of `main`'s parameters as built: re-laid-out weights included."""
    types = [param.ty for param in module["main"].params]
    return [([int(extent) for extent in ty.shape], str(ty.dtype)) for ty in types]


def short(error: BaseException) -> str:
    """The sentence that says what went wrong, without TVM's C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentences = [line for line in lines if not line.startswith(("File ", "at ", "0x", "[bt]"))]
    text = " ".join(sentences or lines) or repr(error)
    return f"{type(error).__name__}: {text}"[:MAX_ERROR]
