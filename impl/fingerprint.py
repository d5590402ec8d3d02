"""The fingerprint of a configuration W (section 2.3 of the paper)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def fingerprint_of(configuration: Mapping[str, object]) -> str:
    """SHA-256 of a configuration, as hexadecimal digits; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
