"""Faults of the engine, seeded one at a time, and what recording, replaying and auditing find of them.

1. `engine_faults.edits`: a fault is a replacement in the source of one function or a few.
2. `engine_faults.in_plan`, `in_forward`, `in_settle`, `in_output`: the faults, by the phase in which they are found.
3. `engine_faults.scenarios`: what the faulty engine serves.
4. `engine_faults.finding`: record, replay every request alone, audit.
"""
