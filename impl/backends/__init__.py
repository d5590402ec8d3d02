"""Backends: what runs a model's launch plan, and holds its pool of key/value pages.

`vosti.impl.backends.cpu` runs it with torch on the CPU, through the primitives of `vosti.impl.backends.torch_ops`.
`vosti.impl.backends.cuda` runs the kernels of `vosti.kernels` on a GPU. The interface is `vosti.impl.backend.Backend`.
"""
