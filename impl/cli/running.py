"""From a command's options to a run: everything is loaded and refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vosti.impl.cli.ending import CannotRun
from vosti.impl.cli.parameters import Mode, ModelOptions, RunOptions
from vosti.impl.cli.progress import Advance, progress

if TYPE_CHECKING:
    from vosti.impl.backend import Backend
    from vosti.impl.checking import Run
    from vosti.impl.options import Certification, EngineOptions
    from vosti.impl.outputs import RequestOutput
    from vosti.impl.workload import Job, Workload
    from vosti.refinement.entries import Header


@dataclass(frozen=True)
class Setting:
    """A model with a workload, and how it is served."""

    model: str
    backend: Backend
    workload: Workload
    jobs: tuple[Job, ...]
    options: EngineOptions
    seed: int
    mode: Mode

    def header(self, options: EngineOptions, mode: Mode, what: str) -> Header:
        """The header of the trace of a run with these options."""
        from vosti.refinement.entries import header

        fields = asdict(options)
        limits = {name: fields.pop(name) for name in ("page_size", "pages", "max_seqs", "token_budget", "reread")}
        context = {"model": self.model, "workload": self.workload.name, "seed": self.seed, "run": what}
        return header(
            self.backend.fingerprint(),
            **limits,
            options=fields,
            mode=mode,
            digest=self.backend.digest_algorithm,
            context=context,
        )


def prepare(model: str, computing: ModelOptions, asked: RunOptions) -> Setting:
    """Load model and workload.

    Raises:
        EngineError: for a model, a workload or an option that cannot be served, or a request that can never fit.
    """
    from vosti.impl import workload as workloads
    from vosti.impl.options import EngineOptions

    plan = workloads.load(asked.workload)
    options = EngineOptions.from_keywords(**asked.engine)
    folder = check_model(model, computing.dummy_weights)
    use_one_thread()

    from vosti.impl.checking import ALONE_PAGE_SIZES, refuse_misfits
    from vosti.impl.opening import open_backend, open_tokenizer

    tokenizer = open_tokenizer(folder)
    page_sizes = (options.page_size, *ALONE_PAGE_SIZES)
    loaded = open_backend(
        folder,
        computing.backend,
        dummy_weights=computing.dummy_weights,
        unsafe_unprobed=computing.unsafe_unprobed,
        certification=certification(computing.certified_only, computing.unsafe_unverified, page_sizes),
    )
    jobs = workloads.jobs(
        plan,
        vocab_size=loaded.vocab_size,
        encode=lambda text, special: tokenizer.encode(text, special=special),
        seed=asked.seed,
    )
    refuse_misfits(loaded, jobs, options)
    return Setting(model, loaded, plan, jobs, options, asked.seed, asked.mode)


def certification(certified_only: bool, unsafe_unverified: bool, page_sizes: Sequence[int] = ()) -> Certification:
    """What two options ask of kernels. A progress bar is there from the first proof to the last.

    Raises `InvalidOptionError` if both are given.
    """
    from vosti.impl.options import Certification

    bars = ExitStack()
    shown: list[Advance] = []

    def advance(done: float, total: float) -> None:
        if not shown:
            shown.append(bars.enter_context(progress("proving kernels")))
        shown[0](done, total)
        if done == total:
            bars.close()
            shown.clear()

    return Certification(certified_only, unsafe_unverified, tuple(page_sizes), advance)


def use_one_thread() -> None:
    """Let torch compute on one thread, as the CPU's configuration W has it. More would not share its work, and get in
    each other's way between forwards.
    """
    import torch

    torch.set_num_threads(1)


def expected_tokens(setting: Setting) -> dict[str, tuple[int, ...]]:
    """What each request with drafts emits without them: where right drafts come from."""
    from vosti.impl.checking import alone_options, run_alone

    drafted = [job for job in setting.jobs if job.draft is not None]
    expected: dict[str, tuple[int, ...]] = {}
    with progress("drafts") as advance:
        for number, job in enumerate(drafted):
            run = run_alone(setting.backend, job, alone_options(job, number))
            expected[job.id] = run.outputs[job.id].token_ids
            advance(number + 1, len(drafted))
    return expected


def recorded(setting: Setting, path: Path, expected: Mapping[str, tuple[int, ...]]) -> tuple[str, Run]:
    """Serve the workload and write its trace, a new file. Returns the trace's head, and the run.

    Raises `RefinementError` if the trace cannot be written.
    """
    from vosti.impl.checking import run_together
    from vosti.refinement.writer import TraceWriter

    header = setting.header(setting.options, setting.mode, "together")
    with TraceWriter(path, header) as tracer, progress("recording") as advance:
        run = run_together(
            setting.backend,
            setting.jobs,
            setting.options,
            expected,
            tracer=tracer,
            full=setting.mode == "full",
            candidates=setting.mode == "candidates",
            on_step=lambda finished: advance(finished, len(setting.jobs)),
        )
    return tracer.head, run


def check_model(model: str, dummy_weights: int | None) -> Path:
    """The folder of a model, or, for dummy weights, the file of a shape. Raises `CannotRun` if there is none."""
    from vosti.impl.bundled import BUNDLED, find_checkpoint, shape_names

    folder = find_checkpoint(model)
    if folder.is_file() and dummy_weights is not None:
        return folder
    if model in shape_names():
        raise CannotRun(f"The model {model} is a shape without weights: give --dummy-weights SEED, or a checkpoint.")
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise CannotRun(
            f"The model {model} {what}: give a folder with config.json, tokenizer.json and safetensors, or the name of "
            f"a bundled checkpoint ({', '.join(BUNDLED)})."
        )
    return folder


def summary_of(output: RequestOutput) -> dict[str, Any]:
    """What a request came to, as JSON types."""
    return {
        "prompt_tokens": len(output.prompt_token_ids),
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "hit_tokens": output.hit_tokens,
        "seed": output.seed,
    }
