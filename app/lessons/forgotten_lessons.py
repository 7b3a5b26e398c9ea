"""The lessons that were forgotten on one page, as long as they can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.records.lessons import Lesson
from py_core.store.rows import Change

if TYPE_CHECKING:
    from app.runtime import Runtime

MOST = 200


class ForgottenLessons:
    """The latest MOST of them. Data that was deleted as a whole leaves nothing here."""

    def __init__(self, runtime: Runtime) -> None:
        self._lessons: dict[str, Lesson] = {}
        self.close = runtime.listen(self._on_change)
        """Stops following the memory."""

    def note(self, lessons: Sequence[Lesson]) -> None:
        """Note that these lessons were forgotten."""
        self._lessons.update({lesson.id: lesson for lesson in lessons})
        for id in list(self._lessons)[:-MOST]:
            del self._lessons[id]

    def take(self, id: str) -> Lesson | None:
        """Take a lesson that is about to be restored; None if it cannot be restored."""
        return self._lessons.pop(id, None)

    def _on_change(self, change: Change) -> None:
        if change.cleared is not None:
            self._lessons.clear()
