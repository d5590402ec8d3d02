"""From the specification's Python to first-order logic, and to the solvers.

- `terms`: first-order terms, and how they are written as SMT-LIB.
- `theory`: sequences, products and finite sets, each by a few axioms.
- `values`: symbolic values of Python types, of any size.
- `source`: where the text of a function is found.
- `symbols`: what a compilation introduces, what it stands for, and what must hold for Python not to raise.
- `operations`: what operators do to symbolic values.
- `comprehensions`: quantifiers, and mappings, sets and tuples by comprehension.
- `compiler`: functions, statements and expressions of the subset.
- `obligation`: what is to be proved, as one SMT-LIB script.
- `components`: what a concrete state and a symbolic one are made of, under the same names.
- `concrete`: what terms are worth on the ids of one concrete step, every quantifier expanded.
- `unrolling`: so many actions on these ids, as one propositional script.
- `solve`: the only module that knows a solver. It answers *proved*, *not proved*, or *gave up*.
"""
