"""What the cuda backend lets run: binaries that a certificate names, and an edited kernel never."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

import torch

from forwards import CHECKPOINTS
from vosti.impl.backends.cuda import opening
from vosti.impl.backends.cuda.backend import CudaBackend, layout
from vosti.impl.backends.cuda.certifier import UNVERIFIED, Certifier, UnverifiedWarning
from vosti.impl.backends.cuda.fingerprint import Device
from vosti.impl.backends.cuda.opening import entries_of, open_cuda
from vosti.impl.errors import InvalidOptionError, UncertifiedKernelError
from vosti.impl.models.model import Model
from vosti.impl.options import PROVE_MISSING, Certification
from vosti.kernels.catalogue import FIXED, KERNELS, SAMPLER, TARGETS, Instance, instances
from vosti.kernels.contract import Contract
from vosti.kernels.embedding import embedding
from vosti.kernels.launch import Kernel
from vosti.kernels.sample import Parameters, draw
from vosti.kernels.tables import Entry, Table, load
from vosti.kernels.verifier.binding import Binding, Certificate
from vosti.kernels.verifier.certify import FOLDER
from vosti.kernels.verifier.entries import Case

ROOT = Path(__file__).parents[2]
TABLE = load("sm_90")
EMBEDDING = TABLE.entry("embedding", width=256, scaled=0)
ONLY = Certification(certified_only=True)
H200 = Device("NVIDIA H200", "sm_90", "580.159.04", "2.11.0+cu130", "triton 3.6.0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of certificates: of the embedding and of what every model launches, and of nothing else."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(autouse=True)
def _kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(folder))


@pytest.fixture
def certifier() -> Certifier:
    """One that has required the embedding's forms."""
    made = Certifier("sm_90", PROVE_MISSING)
    made.require([EMBEDDING])
    return made


class Compiled:
    """In the place of a Triton function: a launch gives a binary that was made without a GPU, each time the same."""

    def __init__(self, instance: Instance) -> None:
        self.binary = instance.compiled(TARGETS["sm_90"])
        self.launches = 0

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(**values: object) -> Any:
            self.launches += 1
            return self.binary

        return launch


def launched(
    function: Compiled, monkeypatch: pytest.MonkeyPatch, contract: Contract = KERNELS["embedding"].contract
) -> None:
    """Launch the embedding, which this function stands for."""
    (instance,) = instances(EMBEDDING)
    stands, rows = Kernel(function, contract), 3
    monkeypatch.setattr("vosti.kernels.embedding.EMBEDDING", stands)
    tokens, table = torch.zeros(rows, dtype=torch.int32), torch.zeros(7, 256, dtype=torch.bfloat16)
    embedding(tokens, table, torch.empty(rows, 256, dtype=torch.bfloat16), instance.tile)


def test_what_a_certificate_names_is_launched(certifier: Certifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at the first time that it is launched, and not again."""
    (instance,) = instances(EMBEDDING)
    function = Compiled(instance)

    with certifier.watching():
        launched(function, monkeypatch)
        function.binary.asm = None
        launched(function, monkeypatch)
    assert 2 == function.launches


@pytest.mark.parametrize("sizes", [{"width": 256, "scaled": 1}, {"width": 1024, "scaled": 0}])
def test_another_binary_is_refused(
    sizes: dict[str, int], certifier: Certifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is certified, but for other constants than it is launched with; each time that it is launched."""
    other = TABLE.entry("embedding", **sizes)
    certifier.require([other])
    function = Compiled(next(instances(other)))

    for _ in range(2):
        with certifier.watching(), pytest.raises(UncertifiedKernelError, match="of embedding is a binary that no cert"):
            launched(function, monkeypatch)
    launched(function, monkeypatch)
    assert 3 == function.launches


@pytest.mark.parametrize(("constants", "refused"), [({}, False), ({"BLOCK": 1024}, True)], ids=["fixed", "another"])
def test_the_sampler_weighs_by_what_a_certificate_names(
    constants: dict[str, int], refused: bool, certifier: Certifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What every model launches has a certificate, beside the entries; a binary of another tile has none."""
    weighs, draws = (next(one for one in FIXED if one.kernel is SAMPLER[name]) for name in ("weights", "draw_from_all"))
    other = replace(weighs, tile=replace(weighs.tile, blocks=tuple(constants.items()) or weighs.tile.blocks))
    weighing, drawing = Compiled(other), Compiled(draws)
    monkeypatch.setattr("vosti.kernels.sample.WEIGHTS", Kernel(weighing, weighs.kernel.contract))
    monkeypatch.setattr("vosti.kernels.sample.DRAW_FROM_ALL", Kernel(drawing, draws.kernel.contract))
    parameters = Parameters(torch.ones(2, dtype=torch.float64), *torch.zeros(4, 2, dtype=torch.int64))

    with certifier.watching(), pytest.raises(UncertifiedKernelError, match="of weights") if refused else nullcontext():
        draw(torch.zeros(2, 64), parameters, cuts=False)
    assert (1, 0 if refused else 1) == (weighing.launches, drawing.launches)


def test_what_is_unverified_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a warning, W says so, nothing is looked up, and any binary is launched."""
    monkeypatch.setenv(FOLDER, "/nowhere")
    with pytest.warns(UnverifiedWarning, match="--unsafe-unverified: kernels run of which nothing is proved here"):
        certifier = Certifier("sm_90", Certification(unsafe_unverified=True))
    certifier.require([EMBEDDING])

    assert UNVERIFIED == certifier.digest([EMBEDDING])
    with certifier.watching():
        launched(Compiled(next(instances(TABLE.entry("embedding", width=256, scaled=1)))), monkeypatch)


def test_the_two_options_exclude_each_other() -> None:
    """Kernels cannot need certificates and run without."""
    with pytest.raises(InvalidOptionError, match="exclude each other"):
        Certification(certified_only=True, unsafe_unverified=True)


def test_the_digest_is_of_what_is_launched(certifier: Certifier) -> None:
    """Whatever is required beside it."""
    digest = certifier.digest([EMBEDDING])
    certifier.require([TABLE.entry("embedding", width=1024, scaled=0)])

    assert digest == certifier.digest([EMBEDDING])
    assert digest != certifier.digest([TABLE.entry("embedding", width=1024, scaled=0)])
    assert 64 == len(digest)


def test_sizes_of_pages_are_no_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention has certificates for the pages of a pool, which W does not mention."""
    asked: list[list[int]] = []

    def found(cases: list[Case], *arguments: object, **options: object) -> list[Certificate]:
        asked.append(sorted(case.constants["PAGE"] for case in cases if case.kernel == "attention"))
        return [certificate_of(case) for case in cases]

    monkeypatch.setattr("vosti.impl.backends.cuda.certifier.certificates", found)
    entry = TABLE.entry("attention", heads=8, kv_heads=2, head_dim=32, window=0)
    certifier = Certifier("sm_90", Certification(page_sizes=(8,)))
    certifier.require([entry])
    digest = certifier.digest([entry])
    certifier.require([entry], (4, 64))
    certifier.require([entry], (4,))

    assert [[8, 16, 64], [4], []] == asked
    assert digest == certifier.digest([entry])


def certificate_of(case: Case) -> Certificate:
    """One that says next to nothing."""
    binding = Binding(case.kernel, "", "", case.name, (), 90, "", ())
    return Certificate(binding, tuple(case.constants.items()), "", "", (), ())


def test_what_samples_has_a_place_in_the_digest(certifier: Certifier) -> None:
    """Its certificate is one of those that the digest is of."""
    digest = certifier.digest([EMBEDDING])
    (weights,) = (name for name in certifier._found if name.startswith("weights "))
    certifier._found[weights] = replace(certifier._found[weights], rules=())

    assert digest != certifier.digest([EMBEDDING])


def test_the_interpreter_has_no_binaries() -> None:
    """On the host there is nothing to certify, and W says what stands there instead."""
    backend = CudaBackend(Model.load(CHECKPOINTS / "tiny-llama3", layout=layout), TABLE, "cpu")
    backend.allocate(4, 16)

    assert backend.certifier is None
    assert "interpreter" == backend.fingerprint()["certificates"]


def test_a_model_without_certificates_is_refused_before_its_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all remedies: the folder has certificates of the embedding alone."""
    monkeypatch.setattr(opening, "find_device", lambda asks, otherwise: H200)
    monkeypatch.setattr(Model, "load", None)
    kept = entries_of

    def few(path: Path, table: Table) -> list[Entry]:
        return [entry for entry in kept(path, table) if entry.operation in ("embedding", "logits")]

    monkeypatch.setattr(opening, "entries_of", few)
    with pytest.raises(
        UncertifiedKernelError,
        match=r"no certificate of logits .*--certified-only forbids .*vosti certify\. \(--unsafe-unverified runs",
    ):
        open_cuda(CHECKPOINTS / "tiny-llama3", certification=ONLY)


PROGRAM = """
from pathlib import Path
from vosti.impl.backends.cuda import opening
from vosti.impl.backends.cuda.fingerprint import Device
from vosti.impl.errors import UncertifiedKernelError
from vosti.impl.models.model import Model
from vosti.impl.options import Certification

def load(*arguments, **options):
    raise UncertifiedKernelError("the weights are read")

Model.load = load
opening.find_device = lambda asks, otherwise: Device("NVIDIA H200", "sm_90", "1", "2", "triton")
opening.entries_of = lambda path, table: [table.entry("embedding", width=256, scaled=0)]
for only in (True, False, True):
    try:
        opening.open_cuda(Path("anywhere"), certification=Certification(certified_only=only))
    except UncertifiedKernelError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("old", "new", "then", "at_last"),
    [
        (
            "table + token * WIDTH",
            "table + token + WIDTH",
            "embedding .* is not proved: ",
            "no certificate of embedding",
        ),
        ("< WIDTH, other=0.0", "< WIDTH, other=1.0", "the weights are read", "the weights are read"),
    ],
    ids=["another value", "the same value"],
)
def test_an_edited_kernel_is_proved_anew_or_refused(
    old: str, new: str, then: str, at_last: str, certifier: Certifier, tmp_path: Path
) -> None:
    """One character: with `certified_only` it is refused; without, it is proved anew, and kept, or refused.

    The sound kernel's certificate is there all the time.
    """
    for folder in ("spec", "impl", "refinement", "kernels"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoints")
        shutil.copytree(ROOT / folder, tmp_path / "vosti" / folder, ignore=ignored)
    path = tmp_path / "vosti" / "kernels" / "embedding.py"
    assert 1 == path.read_text().count(old)
    path.write_text(path.read_text().replace(old, new))

    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    lines = run.stdout.splitlines()
    assert 3 == len(lines), run.stdout + run.stderr
    for expected, line in zip(
        ("no certificate of embedding .* --certified-only forbids", then, at_last), lines, strict=True
    ):
        assert re.search(expected, line), line
