"""Mutants of the engine's control plane, made by rule, and what `vosti check` finds of them.

1. `automatic_mutants.operators`: what a mutant is: one small change of one module's text.
2. `automatic_mutants.checks`: the calls of `vosti check` that each is put through.
3. `automatic_mutants.trial`: one mutant, in a process and a copy of the package of its own.
4. `automatic_mutants.campaign`: many mutants, the reasons that survivors have, and the report.
"""
