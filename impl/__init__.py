"""The engine: paged KV, prefix sharing and continuous batching over the kernels and the specification."""
