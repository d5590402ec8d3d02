"""Faulty runs: one edit of a valid stream each, and the check that must find it.

The edits are what a forger would do who recomputes the chain: the events are written anew, so every entry of the
trace is well formed and in its place.
"""

from faults_of_candidates import CANDIDATE_FAULTS
from faults_of_forwards import FORWARD
from faults_of_plans import ORDER, PLAN
from faults_of_results import FULL_FAULTS, OUTPUTS, PAGE_EDITS, REQUEST_EDITS, REREAD_FAULTS, SNAPSHOTS
from faults_of_settles import SETTLE

__all__ = ["CANDIDATE_FAULTS", "FAULTS", "FULL_FAULTS", "PAGE_EDITS", "REQUEST_EDITS", "REREAD_FAULTS"]

FAULTS = [*ORDER, *PLAN, *FORWARD, *SETTLE, *SNAPSHOTS, *OUTPUTS]
