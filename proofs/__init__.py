"""The proofs: the specification has its properties in all states, and the page pool refines it.

One module for each theorem. Its docstring is the statement, in words and in symbols; its functions are the statement
again, in the subset of Python that is translated to logic, so that tests can run it; `obligations()` yields what is to
be proved. `vosti.proofs.prove` puts all of it to the solvers.

| module | theorem |
| --- | --- |
| `axioms` | the axioms of sequences, products and finite sets, on which the translation rests, are true |
| `inductive` | Inv holds initially, and every action preserves it |
| `definedness` | guards, effects, conjuncts and the forward's premises never raise |
| `two_states` | what an action may change, and what it leaves alone |
| `postconditions` | what each action achieves |
| `canonical_output` | Theorem 4.1: what is emitted or observed is Forward of the request's history |
| `forward_order` | evaluating a forward's computes at once equals every order |
| `determinism` | Definition 2.1, of any two executions, errors included |
| `reuse` | Figure 2: values outlive their creator, and what others do leaves no trace |
| `cuts` | what is accepted as the end of top-k and top-p is the end of what the sampler keeps |
| `pool_refinement` | every transition of the page pool refines its action |
| `pool_composites` | a composite transition is its simple ones in turn |
| `pool_matches`, `pool_rows` | what is matched may be attached; packed rows satisfy `forward_ok` |
| `forward`, `forward_rows` | along its plan, a model's logits are Forward, its slots f_KV; and so in every batch |

*How far this reaches.* Any number of requests, pages and tokens, any page size ≥ 1. What the proofs take on trust is
the translation (`vosti.refinement.smt`), which tests compare with Python form by form and on the specification itself,
the solvers, of which there are two, and the kernel contract, which `vosti.spec.reference` states; `forward` derives it,
of one plan at a time and by induction over its layers, from the contracts of single kernels. `explore` runs every
reachable state within small bounds instead, and `mutants` tries texts that are wrong.
"""
