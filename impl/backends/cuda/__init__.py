"""The CUDA backend, in the order in which it is best read.

1. `vosti.impl.backends.cuda.plan`: the device's launch plan, as data.
2. `vosti.impl.backends.cuda.lowering`: from a family's plan to the device's.
3. `vosti.impl.backends.cuda.metadata`: a batch's integers, checked and laid out.
4. `vosti.impl.backends.cuda.memory`: buffers that grow.
5. `vosti.impl.backends.cuda.binding`: from a launch to a call of its kernel.
6. `vosti.impl.backends.cuda.forward`: the launches of one shape of batch, one by one or as a graph.
7. `vosti.impl.backends.cuda.backend`: the pool, and one forward after the other; with `digests` and `fingerprint`.
8. `vosti.impl.backends.cuda.opening`: what a machine must have.
"""
