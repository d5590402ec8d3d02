"""The kernel verifier: what a kernel computes, proved of the typed IR that the compiler consumes.

In reading order:

- `ir`: a kernel as typed data.
- `legal`: the closed table of operations that it may have.
- `parse`: the compiler's text → `ir.Kernel`.
- `front`: a kernel's source, or its binary → `ir.Kernel`.
"""
