"""`vosti certify`: prove what a model launches, and bind each proof to its binary, without a GPU."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_writable, write_json
from vosti.impl.cli.outcome import counted, table
from vosti.impl.cli.parameters import FILE, LARGEST, PRESSURE, json_option
from vosti.impl.cli.running import certification

if TYPE_CHECKING:
    from vosti.kernels.verifier.entries import Case


@click.command("certify")
@click.argument("model")
@click.option("--architecture", default="sm_90", show_default=True, metavar="NAME", help="Of the GPU that is meant.")
@click.option("--store", type=FILE, metavar="DIR", help="Where certificates are kept (VOSTI_CERTIFICATES).")
@click.option(
    "--page-size",
    "page_sizes",
    type=click.IntRange(1, LARGEST),
    multiple=True,
    help="A size of pages that will be used; may be given several times.  [default: those that vosti itself uses]",
)
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes at a time: one for each processor.")
@json_option
def certify_command(
    model: str,
    architecture: str,
    store: Path | None,
    page_sizes: tuple[int, ...],
    jobs: int | None,
    json_file: Path | None,
) -> int:
    """Prove each form of each kernel that MODEL launches, and keep a certificate that names its binary.

    Needs no GPU, and no weights: MODEL is a checkpoint's folder, a config.json, or a name, such as llama-3.1-8b. What
    is kept already is not proved again. The binaries are those of the Triton that is installed here.

    The digest that is printed is the one that a trace's header has (certificates): if they are the same, what ran are
    the binaries that --json lists, by the SHA-256 of their machine code.

    Exit codes: 0 everything has a certificate, 1 something is not proved.
    """
    check_writable(json_file)
    cases = cases_of(model, architecture, page_sizes)

    from vosti.kernels.catalogue import PAGE_SIZES
    from vosti.kernels.errors import KernelError
    from vosti.kernels.verifier.binding import encode
    from vosti.kernels.verifier.certify import (
        Store,
        UncertifiedError,
        certificates,
        default_store,
        digest_of,
        full_name,
    )
    from vosti.kernels.workers import ProcessDiedError, Workers

    place = default_store() if store is None else Store(store)
    made: list[float] = []
    asked = certification(certified_only=False, unsafe_unverified=False)

    def advance(done: float, total: float) -> None:
        made[:] = [total]
        asked.advance(done, total)

    try:
        with Workers(jobs) as workers:
            found = certificates(cases, place, workers, advance=advance)
    except (UncertifiedError, ProcessDiedError) as error:
        raise CannotRun(str(error)) from error
    except KernelError as error:
        click.echo(f"not proved: {error}")
        return VIOLATION
    rows = [["kernel", "forms", "instructions"]]
    forms = Counter(case.kernel for case in cases)
    classes: dict[str, set[str]] = {kernel: set() for kernel in forms}
    for case, certificate in zip(cases, found, strict=True):
        classes[case.kernel].update(certificate.binding.classes)
    rows += [[kernel, str(count), " ".join(sorted(classes[kernel]))] for kernel, count in sorted(forms.items())]
    click.echo(table(rows))
    compiler = found[0].binding.compiler
    click.echo(
        f"\n{counted(len({full_name(case) for case in cases}), 'certificate')} of {model} on {architecture}, by Triton "
        f"{compiler}, {int(made[0]) if made else 0:,} of them new: {place.folder}"
    )
    named = {full_name(case): certificate for case, certificate in zip(cases, found, strict=True)}
    # W leaves other sizes of pages out.
    digest = digest_of({full_name(case): named[full_name(case)] for case in cases_of(model, architecture, PAGE_SIZES)})
    click.echo(f"Their digest, in the configuration W: {digest}")
    binaries = {name: json.loads(encode(certificate)) for name, certificate in named.items()}
    write_json(json_file, {"certificates": digest, "binaries": binaries})
    return REFINES


def cases_of(model: str, architecture: str, page_sizes: tuple[int, ...]) -> list[Case]:
    """What a model launches. Raises `CannotRun` where there are no tiles, and `EngineError` for what is not served."""
    from vosti.impl.backends.cuda.opening import entries_of
    from vosti.impl.bundled import find_checkpoint
    from vosti.impl.checking import ALONE_PAGE_SIZES
    from vosti.impl.options import EngineOptions
    from vosti.kernels.errors import ConfigurationError
    from vosti.kernels.tables import load
    from vosti.kernels.verifier.certify import launched

    sizes = page_sizes or (EngineOptions.page_size, PRESSURE["page_size"], *ALONE_PAGE_SIZES)
    try:
        return launched(entries_of(find_checkpoint(model), load(architecture)), architecture, sizes)
    except ConfigurationError as error:
        raise CannotRun(str(error)) from error
