"""How the tests start Chromium."""

from __future__ import annotations

from app.building.system import CHROMIUM_FLAGS

TEST_FLAGS = (*CHROMIUM_FLAGS, "--js-flags=--liftoff-only")
"""For pages that are soon closed: V8 does not optimize their WebAssembly, which takes longer than they live."""
