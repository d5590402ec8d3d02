"""The refinement checker: every recorded step of an engine is a step of the specification.

An engine shows ghost events (`vosti.spec.events`); this package writes them to a trace, reads traces back, and checks
them. It knows nothing of any engine, and needs neither a model nor torch.

- `vosti.refinement.entries.header` makes a trace's header, `vosti.refinement.writer.TraceWriter` writes events.
- `vosti.refinement.audit.audit` checks traces, alone and together, and returns a `Verdict`.
- `vosti.refinement.checker.Checker` checks a run event by event, also in memory while the engine runs.
- `vosti.refinement.checks.CHECKS` lists every check that a failure report can name.

The format is described in docs/trace-format.md.
"""
