"""Certificates name the binary, and the audit of the binary finds what the typed IR does not ask for."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import triton
import triton.language as tl
from triton.compiler import ASTSource

from ttir_samples import SAMPLES, sample
from vosti.kernels.catalogue import KERNELS, TARGETS
from vosti.kernels.disassembly import listing
from vosti.kernels.verifier.audit import ptx_findings, ptx_instructions, sass_findings
from vosti.kernels.verifier.binding import (
    BindingError,
    Certificate,
    bind,
    check,
    contract_digest,
    decode,
    encode,
    verifier_digest,
)
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.front import compiled

TARGET = TARGETS["sm_90"]


@triton.jit
def scaled_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A multiplication and an addition, which a compiler might contract."""
    column = tl.arange(0, WIDTH)
    value = tl.load(x + column)
    tl.store(out + column, value * value + 1.0)


@triton.jit
def adding_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """An addition in the order of arrival."""
    column = tl.arange(0, WIDTH)
    tl.atomic_add(out + column, tl.load(x + column))


def binary_of(function: Any, **options: object) -> Any:
    """A compiled kernel."""
    source = ASTSource(
        fn=function, signature={"x": "*fp32", "out": "*fp32", "WIDTH": "constexpr"}, constexprs={(2,): 128}
    )
    return triton.compile(source, target=TARGET, options={"enable_fp_fusion": False, "num_warps": 4, **options})


@pytest.fixture(scope="module")
def scaled() -> Any:
    """The kernel as it has to be compiled."""
    return binary_of(scaled_kernel)


def test_a_binary_is_bound(scaled: Any) -> None:
    """Hashes of what was compiled, of what it was compiled from, and the options that matter."""
    binding = bind(scaled)

    assert "scaled_kernel" == binding.kernel
    assert compiled(scaled).digest == binding.ir
    assert () == binding.classes
    assert 90 == binding.architecture
    assert triton.__version__ == binding.compiler
    assert {"num_warps": 4, "enable_fp_fusion": False, "launch_pdl": False}.items() <= dict(binding.options).items()
    assert [64, 64, 64] == [len(digest) for digest in (binding.ir, binding.ptx, binding.cubin)]


def test_contraction_is_found(scaled: Any) -> None:
    """By the option, in the PTX, and in the machine code; a binary without it is the twin."""
    contracted = binary_of(scaled_kernel, enable_fp_fusion=True)

    assert compiled(contracted).digest == compiled(scaled).digest
    with pytest.raises(BindingError) as error:
        bind(contracted)
    message = str(error.value)
    assert "enable_fp_fusion is set: a multiplication and an addition would be rounded once" in message
    assert "PTX has fma.rn.f32, which no operation of the typed IR asks for" in message
    kernel, text = compiled(scaled), listing(contracted.asm["cubin"])
    assert ["machine code has FFMA, and no instruction of the PTX is made of it"] == sass_findings(
        text, scaled.asm["ptx"], kernel
    )
    assert [] == sass_findings(listing(scaled.asm["cubin"]), scaled.asm["ptx"], kernel)


def test_an_overlapping_launch_is_found() -> None:
    """By the option."""
    with pytest.raises(BindingError, match="launch_pdl is set: a launch could begin before the one before it ends"):
        bind(binary_of(scaled_kernel, launch_pdl=True))


def test_an_atomic_addition_is_found(scaled: Any) -> None:
    """In the typed IR; and in the binary, if that was of another kernel than it says."""
    adding = binary_of(adding_kernel)

    with pytest.raises(RefusedError, match=r"tt\.atomic_rmw is not understood"):
        bind(adding)
    exchanged = SimpleNamespace(asm={**adding.asm, "ttir": scaled.asm["ttir"]}, metadata=adding.metadata)
    with pytest.raises(BindingError) as error:
        bind(exchanged)
    assert "PTX has atom." in str(error.value) or "PTX has red." in str(error.value)
    assert "machine code has RED" in str(error.value) or "machine code has ATOM" in str(error.value)


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("griddepcontrol.wait;", "a launch that overlaps the one before it"),
        ("@%p1 red.global.add.f32 [%rd1], %f1;", "a value that depends on the order of arrival"),
        ("cp.reduce.async.bulk.global.shared::cta.add.f32 [%rd1], [%r1], 16;", "depends on the order of arrival"),
        ("{ multimem.red.add.f32 [%rd1], %f1; }", "depends on the order of arrival"),
        ("mul.f32 %f3, %f1, %f2;", "which no operation is known to be made of"),
        ("add.rz.f32 %f3, %f1, %f2;", "which no operation is known to be made of"),
        ("add.rn.ftz.f32 %f3, %f1, %f2;", "which no operation is known to be made of"),
        ("fma.rn.bf16x2 %r3, %r1, %r2, %r1;", "which no operation is known to be made of"),
        ("fma.rn.f64 %fd3, %fd1, %fd2, %fd1;", "which no operation is known to be made of"),
        ("mul.f64 %fd3, %fd1, %fd2;", "which no operation is known to be made of"),
        ("div.rn.f64 %fd3, %fd1, %fd2;", "which no operation of the typed IR asks for"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};", "no operation is known"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            "no operation of the typed",
        ),
        ("div.rn.f32 %f3, %f1, %f2;", "which no operation of the typed IR asks for"),
        ("ex2.approx.f32 %f3, %f1;", "which no operation of the typed IR asks for"),
        ("redux.sync.max.s32 %r1, %r2, %r3;", "which no operation of the typed IR asks for"),
    ],
)
def test_an_instruction_that_nothing_asks_for_is_found(scaled: Any, line: str, finding: str) -> None:
    """In a PTX text that has one more line than the compiler's."""
    text, kernel = scaled.asm["ptx"], compiled(scaled)
    edited = text.replace("\tret;", f"\t{line}\n\tret;")

    assert [] == ptx_findings(text, kernel)
    assert edited != text
    (found,) = ptx_findings(edited, kernel)[:1]
    assert finding in found


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("@!P0 RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5 ;", "machine code has RED: a value"),
        ("ATOMG.E.ADD.STRONG.GPU PT, R0, [R2.64], R5 ;", "machine code has ATOMG: a value"),
        ("PREEXIT ;", "machine code has PREEXIT: a launch"),
        ("ACQBULK ;", "machine code has ACQBULK: a launch"),
        ("@P1 FFMA R0, R1, R2, R3 ;", "machine code has FFMA, and no instruction"),
        ("DFMA R0, R2, R4, R6 ;", "machine code has DFMA, and no instruction"),
        ("HFMA2.MMA R0, R1, R2, R3 ;", "machine code has HFMA2, and no instruction"),
    ],
)
def test_machine_code_that_nothing_asks_for_is_found(scaled: Any, line: str, finding: str) -> None:
    """In a disassembly that has one more line; a constant that is written by a product is none."""
    text, ptx, kernel = listing(scaled.asm["cubin"]), scaled.asm["ptx"], compiled(scaled)

    assert [] == sass_findings(f"{text}\n        /*0ff0*/    HFMA2.MMA R7, -RZ, RZ, 1.875, 0 ;", ptx, kernel)
    (found,) = sass_findings(f"{text}\n        /*0ff0*/    {line}", ptx, kernel)
    assert found.startswith(finding)


@pytest.mark.parametrize(
    ("kernel", "classes"), [("embedding", ()), ("gate_up", ("wgmma",)), ("linear", ("wgmma",)), ("rms_norm", ())]
)
def test_kernels_have_nothing_else(kernel: str, classes: tuple[str, ...]) -> None:
    """Divisions, roots and tanh are made of products and sums in one; the typed IR asks for them."""
    binary = sample(kernel).compiled(TARGET)

    assert classes == bind(binary).classes
    if classes:
        # A binary without matrix instructions computes its products in another order.
        found = sass_findings(listing(binary_of(scaled_kernel).asm["cubin"]), binary.asm["ptx"], compiled(binary))
        assert ["machine code has no matrix instruction, and the typed IR has a product of matrices"] == found


@pytest.mark.slow
@pytest.mark.parametrize("kernel", SAMPLES)
def test_every_kernel_has_nothing_else(kernel: str) -> None:
    """One form of each."""
    assert bind(sample(kernel).compiled(TARGET)).kernel == f"{kernel}_kernel"


def certificate_of(binary: Any) -> Certificate:
    """A certificate."""
    contract = KERNELS["embedding"].contract
    return Certificate(
        binding=bind(binary),
        configuration=(("WIDTH", 128),),
        contract=contract_digest(contract),
        verifier=verifier_digest(),
        rules=("chain of groups",),
        premises=("rows <= 2**30",),
    )


def test_a_certificate_is_about_one_binary(scaled: Any) -> None:
    """And one contract, and one verifier: each change is named."""
    certificate, contract = certificate_of(scaled), KERNELS["embedding"].contract

    check(certificate, scaled, contract)
    other = binary_of(scaled_kernel, num_warps=1)
    assert compiled(other).digest == compiled(scaled).digest
    with pytest.raises(BindingError, match="is about another PTX and another machine code; prove the kernel again"):
        check(certificate, other, contract)
    with pytest.raises(BindingError, match="about another contract"):
        check(certificate, scaled, dataclasses.replace(contract, premises=(*contract.premises, "rows <= 7")))
    with pytest.raises(BindingError, match="about another verifier"):
        check(dataclasses.replace(certificate, verifier="0" * 64), scaled, contract)
    with pytest.raises(BindingError, match="about another IR"):
        check(
            dataclasses.replace(certificate, binding=dataclasses.replace(certificate.binding, ir="0" * 64)),
            scaled,
            contract,
        )


def test_a_certificate_is_written_and_read(scaled: Any) -> None:
    """In one form only."""
    certificate = certificate_of(scaled)
    text = encode(certificate)

    assert certificate == decode(text)
    data = json.loads(text)
    for broken in (
        text[:-3],
        text + " ",
        json.dumps(data),
        "[]",
        json.dumps({**data, "rules": None}, indent=2, sort_keys=True) + "\n",
        json.dumps({**data, "more": 1}, indent=2, sort_keys=True) + "\n",
        json.dumps({**data, "binding": {}}, indent=2, sort_keys=True) + "\n",
    ):
        with pytest.raises(BindingError, match="not the canonical form"):
            decode(broken)


def test_instructions_are_found_wherever_they_stand() -> None:
    """After a predicate, a brace, or another instruction; not in a comment or a directive."""
    text = (
        "\t.reg .f32 %f<3>;\n$L__1:\n\t@!%p1 add.rn.f32 %f1, %f2, %f2; sub.s32 %r1, %r1, 1;\n{ ret; } // mul.f32 x;\n"
    )

    assert ["add.rn.f32", "sub.s32", "ret"] == ptx_instructions(text)
