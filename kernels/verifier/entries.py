"""What there is to prove: every kernel at every entry of an architecture's table, and kernels of a user's own."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vosti.kernels.attention_split import ATTENTION_MERGE, ATTENTION_SPLIT
from vosti.kernels.attention_tiles import ROW_PROGRAM
from vosti.kernels.catalogue import FIXED, TARGETS, Instance, instances
from vosti.kernels.contract import Contract
from vosti.kernels.digest import DIGEST, DIGEST_MERGE
from vosti.kernels.errors import KernelError
from vosti.kernels.launch import Kernel
from vosti.kernels.shapes import SHAPES, operations
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.errors import VerifierError, faults_named
from vosti.kernels.verifier.front import located

if TYPE_CHECKING:
    # A case can be named, and its certificate found, where there is no solver.
    from vosti.kernels.verifier.prove import Earlier, Proof

ARCHITECTURE = "sm_90"
"""Whose table is meant where none is named."""

EVERY_PAGE = (1, 2, 4, 16, 64, 256)
"""Page sizes that may be asked for, besides those that a table's instances are listed for."""


class NothingToProveError(VerifierError):
    """What was asked for names no kernel at any entry."""


@dataclass(frozen=True)
class Case:
    """One kernel at one configuration."""

    instance: Instance
    architecture: str

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.instance.kernel.contract.kernel

    @property
    def constants(self) -> dict[str, int]:
        """Values of all compile-time parameters."""
        return {**self.instance.constants, **dict(self.instance.tile.blocks)}

    @property
    def name(self) -> str:
        """Kernel and configuration."""
        elements = [f"{name}:{element}" for name, element in self.instance.elements.items()]
        return " ".join([self.kernel, *(f"{name}={value}" for name, value in self.constants.items()), *elements])

    def earlier(self) -> tuple[Earlier, ...]:
        """The launches whose results the kernel reads."""
        from vosti.kernels.verifier.prove import Earlier

        if self.instance.kernel is DIGEST_MERGE:
            return (Earlier(DIGEST.contract, {}),)
        if self.instance.kernel is not ATTENTION_MERGE:
            return ()
        contract = ATTENTION_SPLIT.contract
        known = {**self.constants, **ROW_PROGRAM}
        return (Earlier(contract, {name: known[name] for name in contract.constants if name in known}),)

    def prove(self) -> Proof:
        """Compile, without a GPU, and prove.

        Raises:
            RefusedError: if it is not proved.
            FaultError: if the verifier fails.
        """
        from vosti.kernels.verifier.prove import prove

        one = self.instance
        with faults_named():
            kernel = located(one.kernel, one.constants, one.tile, TARGETS[self.architecture], one.elements)
            return prove(kernel, one.kernel.contract, self.constants, one.elements, self.earlier())


def cases(architecture: str = ARCHITECTURE, model: str | None = None, *, every_page: bool = False) -> Iterator[Case]:
    """Each kernel, at each entry of the table (of a model's sizes) or as fixed, once.

    Raises:
        NothingToProveError: if there is no such model.
    """
    if model is not None and model not in SHAPES:
        raise NothingToProveError(f"There are no sizes of {model!r}: there are those of {', '.join(SHAPES)}.")
    table = load(architecture)
    wanted = None if model is None else {(name, tuple(sorted(sizes))) for name, sizes in operations(SHAPES[model])}
    seen: set[str] = set()
    entries = [entry for key, entry in sorted(table.entries.items()) if wanted is None or key in wanted]
    for instance in (*(one for entry in entries for one in instances(entry)), *FIXED):
        pages = EVERY_PAGE if every_page and "PAGE" in instance.constants else (instance.constants.get("PAGE"),)
        for page in pages:
            constants = {**instance.constants, **({} if page is None else {"PAGE": page})}
            case = Case(replace(instance, constants=constants), architecture)
            # Numbers of warps and of stages are no part of the typed IR.
            if case.name not in seen:
                seen.add(case.name)
                yield case


def own_cases(path: Path, architecture: str = ARCHITECTURE) -> list[Case]:
    """The cases of a file: its module's `INSTANCES`, each a `vosti.kernels.catalogue.Instance`.

    Raises:
        NothingToProveError: if the file cannot be loaded, has none, or has something else among them.
    """
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise NothingToProveError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise NothingToProveError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, "INSTANCES", ())
    if not found:
        raise NothingToProveError(f"{path} has no INSTANCES: a list of vosti.kernels.catalogue.Instance.")
    for one in found if isinstance(found, Sequence) else (found,):
        if problem := _problem(one):
            raise NothingToProveError(f"{path}: {problem}.")
    return [Case(instance, architecture) for instance in found]


def _problem(one: object) -> str | None:
    """What is wrong with an element of a file's `INSTANCES`, if anything is."""
    if not (isinstance(one, Instance) and isinstance(one.kernel, Kernel) and isinstance(one.tile, Tile)):
        return f"INSTANCES has {one!s:.60}, and not Instance(Kernel(...), {{...}}, Tile(...))"
    contract = one.kernel.contract
    if not isinstance(contract, Contract):
        return "a kernel of INSTANCES has no vosti.kernels.contract.Contract"
    missing = set(contract.constants) - {*one.constants, *dict(one.tile.blocks)}
    return f"an instance of {contract.kernel} lacks {', '.join(sorted(missing))}" if missing else None


@dataclass(frozen=True)
class Decided:
    """What came of a case."""

    kernel: str
    name: str
    refusal: str | None
    """Why it is not proved; None if it is."""

    seconds: float
    """Of the proof, the compilation left out: time of the processor."""

    digest: str = ""
    """Of the typed IR."""

    obligations: Mapping[str, int] | None = None
    rules: tuple[str, ...] = ()
    queries: int = 0
    """That the solver was asked."""

    refuted: int = 0
    """Those of which the proof consists."""

    again: int = 0
    """Of these, how many the second solver refuted too."""

    model: Mapping[str, str] | None = None
    """Values that meet the premises."""


def decide(case: Case, *, again: bool = False) -> Decided:
    """Prove a case; with `again`, have cvc5 refute each query that Z3's proof consists of.

    What fails in the verifier or in a solver leaves this case unproved, and the refusal says so.
    """
    from vosti.refinement.smt.solve import LIMITS, Answer, with_cvc5

    begun = time.process_time()
    try:
        proof = case.prove()
        scripts = proof.tally.scripts
        with faults_named():
            repeated = [with_cvc5(script, LIMITS.cvc5).answer for script in scripts] if again else []
    except KernelError as error:
        return Decided(case.kernel, case.name, str(error), time.process_time() - begun)
    refuted = repeated.count(Answer.PROVED)
    refusal = None
    if again and refuted != len(scripts):
        refusal = f"cvc5 refutes {refuted} of the {len(scripts)} queries that the proof consists of."
    return Decided(
        kernel=case.kernel,
        name=case.name,
        refusal=refusal,
        seconds=proof.seconds,
        digest=proof.digest,
        obligations=dict(proof.obligations),
        rules=tuple(sorted(proof.rules)),
        queries=proof.tally.queries,
        refuted=len(scripts),
        again=refuted,
        model=dict(proof.model),
    )
