"""Mutants of the kernels' typed IR, made by rule, and what the verifier makes of each.

1. `kernel_mutants.edits`: a kernel of which some operations are others.
2. `kernel_mutants.operators`: what a mutant is: one small change of one operation.
3. `kernel_mutants.attributes`: changes of what the text has beside operations and operands.
4. `kernel_mutants.forms`: the forms of the kernels that are mutated.
5. `kernel_mutants.runs`: the launches that show what a mutant computes.
6. `kernel_mutants.places`: which operations a finding names.
7. `kernel_mutants.outcomes`: what came of a mutant, and why some that are proved change nothing.
8. `kernel_mutants.trial`: one mutant is proved or refused, and run.
9. `kernel_mutants.inputs`: what a campaign starts from, in a file.
10. `kernel_mutants.kept`: outcomes kept in a file, from which a campaign that was interrupted goes on.
11. `kernel_mutants.campaign`: many mutants.
12. `kernel_mutants.report`: what came of them, as tables.
"""
