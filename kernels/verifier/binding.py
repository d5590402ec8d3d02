"""Which binary a proof is about: certificates.

A proof is about the typed IR. A certificate names the binary that was compiled from it, by the hashes of its PTX and
machine code, and holds what else the claim rests on. It is made only of a binary that `vosti.kernels.verifier.audit`
finds nothing in.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import vosti.kernels.contract
import vosti.spec.numerics
from vosti.kernels.contract import Contract
from vosti.kernels.disassembly import listing, matrix_classes
from vosti.kernels.verifier.audit import ptx_findings, sass_findings
from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.front import compiled

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ptx_options", "enable_fp_fusion", "launch_pdl")
"""Of the compiler, as far as they decide what the binary does; their names are the compiler's."""

_REFUSED = {
    "enable_fp_fusion": "a multiplication and an addition would be rounded once",
    "launch_pdl": "a launch could begin before the one before it ends",
    "ptx_options": "the assembler would be given options that the audit does not know",
}


_LISTS = ("configuration", "rules", "premises")


class BindingError(VerifierError):
    """A binary does what its typed IR does not ask for, or is not the one that a certificate is about."""


@dataclass(frozen=True)
class Binding:
    """A binary and what it was compiled from. Hashes are SHA-256, in hexadecimal."""

    kernel: str
    """The function's name."""

    ir: str
    """Digest of the tile IR."""

    ptx: str
    cubin: str
    classes: tuple[str, ...]
    """Of its matrix instructions, as `vosti.kernels.disassembly` names them."""

    architecture: int
    """Compute capability, as in 90."""

    compiler: str
    """Triton's version."""

    options: tuple[tuple[str, int | str | None], ...]


@dataclass(frozen=True)
class Certificate:
    """A proof's result and its binding."""

    binding: Binding
    configuration: tuple[tuple[str, int], ...]
    """Values of the kernel's compile-time parameters."""

    contract: str
    """Digest of the contract."""

    verifier: str
    """Digest of the source of what proves: `verifier_digest`."""

    rules: tuple[str, ...]
    """Names of the numerical rules that the proof used."""

    premises: tuple[str, ...]
    """What the proof took for granted of a launch, in words."""


def bind(binary: Any) -> Binding:
    """The binding of a compiled kernel. Raises `BindingError` with all that the audit finds."""
    kernel, text, cubin = compiled(binary), binary.asm["ptx"], binary.asm["cubin"]
    machine_code = listing(cubin)
    findings = [f"{name} is set: {why}" for name, why in _REFUSED.items() if getattr(binary.metadata, name, None)]
    findings += ptx_findings(text, kernel) + sass_findings(machine_code, text, kernel)
    if findings:
        raise BindingError(f"The binary of {kernel.name} is refused: {'; '.join(findings)}.")
    return Binding(
        kernel=kernel.name,
        ir=kernel.digest,
        ptx=hashlib.sha256(text.encode()).hexdigest(),
        cubin=hashlib.sha256(cubin).hexdigest(),
        classes=matrix_classes(machine_code),
        architecture=binary.metadata.target.arch,
        compiler=binary.metadata.triton_version,
        options=tuple((name, getattr(binary.metadata, name, None)) for name in _OPTIONS),
    )


def check(certificate: Certificate, binary: Any, contract: Contract) -> None:
    """Raise `BindingError` unless the certificate is about this binary, this contract and this verifier."""
    expected = {"IR": certificate.binding.ir, "PTX": certificate.binding.ptx, "machine code": certificate.binding.cubin}
    found = {
        "IR": compiled(binary).digest,
        "PTX": hashlib.sha256(binary.asm["ptx"].encode()).hexdigest(),
        "machine code": hashlib.sha256(binary.asm["cubin"]).hexdigest(),
    }
    expected |= {"contract": certificate.contract, "verifier": certificate.verifier}
    found |= {"contract": contract_digest(contract), "verifier": verifier_digest()}
    different = [name for name in expected if expected[name] != found[name]]
    if different:
        raise BindingError(
            f"The certificate of {certificate.binding.kernel} is about another {' and another '.join(different)}; "
            "prove the kernel again (vosti certify, or a run without --certified-only)."
        )


def contract_digest(contract: Contract) -> str:
    """The version of a contract: of all that it says."""
    return hashlib.sha256(json.dumps(asdict(contract), default=_text).encode()).hexdigest()


def _text(value: object) -> str:
    """A row program as its source, anything else as it prints."""
    return inspect.getsource(value) if inspect.isfunction(value) else str(value)


@cache
def verifier_digest() -> str:
    """The version of what proves: of the source of the verifier, of the row programs, and of what asks the solver."""
    solver = find_spec("vosti.refinement.smt.solve")
    assert solver is not None
    assert solver.origin is not None
    files = [
        *sorted(Path(__file__).parent.glob("*.py")),
        *sorted(Path(vosti.spec.numerics.__path__[0]).glob("*.py")),
        Path(vosti.kernels.contract.__file__),
        Path(solver.origin),
    ]
    return hashlib.sha256(b"".join(file.name.encode() + b"\n" + file.read_bytes() for file in files)).hexdigest()


def encode(certificate: Certificate) -> str:
    """The canonical JSON form."""
    return json.dumps(asdict(certificate), indent=2, sort_keys=True) + "\n"


def decode(text: str) -> Certificate:
    """From the JSON form. Raises `BindingError` if it is not the canonical form of a certificate."""
    try:
        data: dict[str, Any] = json.loads(text)
        certificate = Certificate(**{**_frozen(data), "binding": Binding(**_frozen(data["binding"]))})
        canonical = encode(certificate) == text and all(type(getattr(certificate, name)) is tuple for name in _LISTS)
    except (AttributeError, KeyError, TypeError, ValueError):
        canonical = False
    if not canonical:
        raise BindingError("This is not the canonical form of a certificate; prove the kernel again.")
    return certificate


def _frozen(data: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, and the lists within them."""
    return {name: _tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)
