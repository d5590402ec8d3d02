"""Whether a GPU follows the numerical rules that proofs use: `vosti.kernels.verifier.rules`, those that are probed.

Each rule is tried by small kernels on random and hostile data, in every form that tables name: `products` (chain and
masked product), `elementwise` (conversion, function, zero exponent), `reductions` (free maximum, two lanes, empty
total), and `repeats` (that a kernel gives the same bits twice; `launches` has the kernels' data). What is compared has
a control: data, or another order, with which the same comparison must find a difference, or the probe says nothing and
has failed.

`machine` has the kernels and launches them, `findings` what a comparison comes to, `record` what is written down and
where it is kept, `suite` all of it together. `consequences` says what a rule that failed disables.
"""
