"""The kernel verifier: what a kernel computes, proved of the typed IR that the compiler consumes.

In reading order:

- `ir`: a kernel as typed data.
- `legal`: the closed table of operations that it may have.
- `parse`: the compiler's text → `ir.Kernel`.
- `front`: a kernel's source, or its binary → `ir.Kernel`.
- `interpret`: an interpreter of `ir.Kernel`, to test what is above.
- `prove`, and what it imports: a contract and a kernel → obligations, each shown or refused; `entries`: all of ours.
- `audit`: what a binary's instructions do that the typed IR does not ask for.
- `binding`: certificates, which name the binary that a proof is about; `certify`: made, kept and found again;
  `workers`: made in several processes.
"""
