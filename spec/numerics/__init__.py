"""Canonical row programs: the floating-point operations, in order, that produce one output row.

A model's values are sums and products of floating-point numbers, and floating-point addition is not associative: a
result is fixed only once the order of every operation is. A row program writes that order down. It takes an `ops`
argument, the primitives, and is written as for **one row** (one token of one sequence); leading axes broadcast, so
that an instance whose arrays hold a whole tile of rows runs the very same text. Nothing in a row program can tell
where its row stands, how many rows run beside it, or on which pages its keys lie.

1. `vosti.spec.numerics.ops`: the primitives, and what each of them means.
2. `vosti.spec.numerics.projections`: linear layers and embeddings.
3. `vosti.spec.numerics.norms`: RMSNorm and its variants.
4. `vosti.spec.numerics.rotary`: rotary position embedding.
5. `vosti.spec.numerics.activations`: gated activations and the soft cap.
6. `vosti.spec.numerics.attention`: attention over absolute key tiles, with and without a sliding window.
7. `vosti.spec.numerics.floats`: an instance in plain Python, the executable meaning of the primitives.

Row programs are ordinary Python with loops: they stand outside the subset that is translated to logic. In the paper
they are the functions f_K of section 3, which its proof leaves uninterpreted.
"""
