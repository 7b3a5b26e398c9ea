"""Each case of the JSON-Schema-Test-Suite is right, or its schema is refused with the path of a keyword."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.grammar.schema_suite import open_vocabulary, verdicts

RIGHT = {"draft2020-12": 1570, "draft2019-09": 1573, "draft7": 1281, "draft6": 1071, "draft4": 792}
"""At least."""
ON_PURPOSE = {"draft2020-12": 16, "draft7": 4, "draft4": 1}


@pytest.mark.all
@pytest.mark.parametrize("draft", RIGHT)
def test_each_case_is_right_or_refused(draft: str, model_path: Path) -> None:
    found = list(verdicts(*open_vocabulary(model_path), draft))
    assert [one for one in found if one.came == "wrong"] == []
    assert [one for one in found if one.came == "refused" and not one.why.startswith("#")] == []
    counts = Counter(one.came for one in found)
    assert counts["right"] >= RIGHT[draft]
    assert counts["on purpose"] == ON_PURPOSE.get(draft, 0)
