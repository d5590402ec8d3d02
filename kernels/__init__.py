"""The arithmetic: kernels, each of which computes one canonical row program of `vosti.spec.numerics`.

A kernel's output row is the row program's, whatever the tile, the batch, the chunk, the page size and the layout. Each
operation has a module with its Triton functions, a launcher, and a contract that says what is claimed:

1. `vosti.kernels.linear`: linear layers, and the fused projection of queries, keys and values.
2. `vosti.kernels.gate_up`: the two projections of a gated layer with the activation.
3. `vosti.kernels.embedding`: embeddings, and scaled ones.
4. `vosti.kernels.rms_norm`: RMSNorm, with and without a residual stream, plain and with the unit offset.
5. `vosti.kernels.rotary_store`: norm of heads, rotary embedding, and the store of keys and values.
6. `vosti.kernels.kv_store`: the store alone.
7. `vosti.kernels.attention`: prefill, chunks and drafts; over `attention_tiles`, as is the next.
8. `vosti.kernels.attention_split`: few rows over many keys, split by split, and the merge.
9. `vosti.kernels.finite`: the soft cap on logits, and flags for numbers that are not finite.
10. `vosti.kernels.digest`: digests of slots and of logits, for traces.
11. `vosti.kernels.sample`: the exact sampler's tokens; over `sample_weights`, `sample_cuts` and `sample_search`, which
    is no kernel: torch finds what a kernel checks.

Around them: `contract` (what a contract says), `launch` (options, premises, compilation without a GPU), `tile`,
`tables` (which tiles may run, from data files), `shapes` (sizes of known models), `candidates`, `hostile` and `tuning`
(how tables are made), `catalogue` (all kernels by name), `disassembly` (what stands in binaries), `devices` (which
GPUs kernels were run on).

Nothing is chosen by timing while the engine runs, and no compilation depends on an integer of a launch.
"""
