"""`vosti generate`: the continuation of one prompt, as it comes."""

from __future__ import annotations

import click

from vosti.impl.cli.ending import REFINES
from vosti.impl.cli.parameters import ModelOptions, model_options
from vosti.impl.cli.running import certification, check_model, use_one_thread


@click.command("generate")
@click.argument("model")
@click.option("-p", "--prompt", required=True, help="The text to continue.")
@click.option("--max-tokens", type=int, default=128, show_default=True, help="How many tokens, at most.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="How many candidates are kept; 0 keeps all.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="The mass of candidates that is kept.")
@click.option("--min-p", type=float, default=0.0, show_default=True, help="The least weight, relative to the largest.")
@click.option("--seed", type=int, help="Of the sampler; drawn if it is missing, and told on stderr.")
@click.option("--ignore-eos", is_flag=True, help="Go on after an end-of-sequence token.")
@click.option(
    "--speculative-tokens",
    type=int,
    default=0,
    show_default=True,
    help="Tokens of a draft that is looked up in the text.",
)
@model_options
def generate_command(
    model: str,
    prompt: str,
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int | None,
    ignore_eos: bool,
    speculative_tokens: int,
    computing: ModelOptions,
) -> int:
    """Continue a prompt with the checkpoint MODEL: the text goes to stdout as it comes.

    The same prompt, options and seed give the same text, whatever else is served beside it.
    """
    folder = check_model(model, computing.dummy_weights)

    import secrets

    from vosti.impl.llm import LLM
    from vosti.impl.options import SamplingParams

    use_one_thread()
    drawn = seed is None and temperature > 0
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=secrets.randbits(64) if drawn else seed,
        ignore_eos=ignore_eos,
    )
    llm = LLM(
        folder,
        backend=computing.backend,
        dummy_weights=computing.dummy_weights,
        unsafe_unprobed=computing.unsafe_unprobed,
        certification=certification(computing.certified_only, computing.unsafe_unverified),
        speculative_tokens=speculative_tokens,
    )
    for piece in llm.stream(prompt, params):
        click.echo(piece, nl=False)
    click.echo()
    if drawn:
        click.echo(f"seed {params.seed}", err=True)
    return REFINES
