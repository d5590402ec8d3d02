"""What a deterministic LLM inference engine is, as ordinary Python.

This package is the specification. It imports nothing but the standard library, runs as it stands, and is meant to be
read, in this order:

1. `vosti.spec.determinism`: Definition 2.1, the property that everything else is for.
2. `vosti.spec.reference`: the model as the engine knows it, and the cold reference machine.
3. `vosti.spec.state`: requests, pages, and the state of an engine.
4. `vosti.spec.actions`: everything that may happen to a state, each a guard and an effect.
5. `vosti.spec.invariants`: what holds in every reachable state, grouped as in the paper's section 4.2.
6. `vosti.spec.rows`: what the kernels are told of a forward, and when that is what was planned.
7. `vosti.spec.step`: an engine step, in three phases.
8. `vosti.spec.control`: the same step, as far as it can be judged without values.
9. `vosti.spec.events`: what an engine shows of itself, so that somebody else can check it.
10. `vosti.spec.digests`: what stands for a value's bits.
11. `vosti.spec.sampling`: the exact sampler.
12. `vosti.spec.candidates`: what of a row decides a token.
13. `vosti.spec.numerics`: the canonical row programs, the floating-point operations behind one output row.

Numbers of sections, definitions and theorems are those of the paper "Vosti: Specifying, Implementing, and Verifying
Deterministic LLM Inference".

**The subset.** Guards, effects, invariants and definitions are written in a subset of Python that can be translated
to first-order logic without a change: frozen dataclasses and `replace`; mappings, frozen sets, tuples and `X | None`;
`and`, `or`, `not`, chained comparisons, conditional expressions; `all` and `any` over comprehensions; `{**m, k: v}`
and dict comprehensions that keep their keys; slices within range; names for intermediate values, and of integers of
the module; an early `return`. No loops, no recursion, no exceptions. A function marked `@opaque` is known to proofs by
its type alone. What stands outside the subset (the fold over a step's actions, most of the sampler, the row programs)
says so.
"""
