"""Mutants of the kernels' typed IR, made by rule, and what the verifier makes of each.

1. `kernel_mutants.edits`: a kernel of which some operations are others.
2. `kernel_mutants.operators`: what a mutant is: one small change of one operation.
3. `kernel_mutants.attributes`: changes of what the text has beside operations and operands.
4. `kernel_mutants.forms`: the forms of the kernels that are mutated, and the launches that show what a mutant computes.
5. `kernel_mutants.campaign`: many mutants, each proved or refused and run, and the report.
"""
