"""The proofs: the specification has its properties in all states, and the page pool refines it."""
