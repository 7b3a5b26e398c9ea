"""Learning in idle times: decides when a learning loop may run, holds it while a person uses Sonata, and reports its
progress.

A running loop is held as soon as somebody types or an answer is being generated: the device is free after the current
piece of work. The loop is ended, and later resumes from its saved progress, if the reason may last: its switch, the
battery, a pause, or a person who stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from app.consolidation.idle_work import IdleStatus, Loop, OnlyOne, Progress, State
from app.records.policies import Policies, Value
from py_core.messages import Message, Words, words_of

IDLE_SECONDS = 10.0
"""A loop starts or continues after this time without typing and without an answer being generated."""
HELD_SECONDS = 300.0
"""A loop that was held this long is ended, and gives its memory back."""
LOOK_SECONDS = 600.0
"""The time until the next look, also after trouble."""
ELSEWHERE_SECONDS = 30.0
"""The time between looks whether another tab has stopped learning."""
LOW_BATTERY = 0.3
SWITCH = "learning.{}"
"""The policy that switches a loop: bool, true by default."""
LAST = "learning.{}.last"
"""The policy with the time at which a loop last finished: seconds since 1970."""

_LEARNS = Message("idle.learning", "Sonata is learning.")
_WAITS = Message("idle.in-use", "Learning waits while you use Sonata.")


@dataclass(frozen=True)
class _RunningLoop:
    loop: Loop
    task: asyncio.Task[None]
    progress: Progress


class IdleLearning:
    """Runs the first of the loops that may run. `start` begins to look, `close` ends the running loop.

    policies: None while the memory is not open. hold: a context in which idle work is paused (`Engine.idle_held`).
    changed: called when `status` may have changed.
    """

    def __init__(
        self, loops: Sequence[Loop], policies: Callable[[], Policies | None],
        hold: Callable[[], AbstractContextManager[None]], only_one: OnlyOne,
        changed: Callable[[], None] = lambda: None, idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._loops, self._policies, self._hold, self._only_one = tuple(loops), policies, hold, only_one
        self._changed, self._idle_seconds, self._clock = changed, idle_seconds, clock
        self._news = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._run: _RunningLoop | None = None
        self._chosen: Loop | None = None
        self._looked = False
        """True if the choice is made: a loop, or none."""
        self._holding = ExitStack()
        self._held_since: float | None = None
        self._answers = 0
        self._quiet_from = clock() + idle_seconds
        self._paused = False
        self._battery: tuple[float, bool] | None = None
        self._asked: set[str] = set()
        self._troubles: dict[str, tuple[Words, float]] = {}
        """By loop that failed: the sentence, and the time of the next try."""
        self._status = IdleStatus(
            "waiting", Message("idle.looks", "Sonata is checking whether there is something to learn.")
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the loops."""
        return [loop.name for loop in self._loops]

    @property
    def status(self) -> IdleStatus:
        said = self._status
        if self._run is None or said.state not in ("running", "held"):
            return said
        at = self._run.progress
        sentence = said.sentence
        if said.state == "running" and at.what:
            sentence = Message("idle.learning-what", "Sonata is learning: it {what}.", what=at.what)
        sentence = at.told_after(sentence)
        return IdleStatus(said.state, sentence, said.loop, at.done, at.total, at.seconds_left, at.what)

    def start(self) -> None:
        """Start looking for work. Must be called on the event loop."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """End the running loop, which saves its progress."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._end()
        self._holding.close()

    # ---- what happens around it ----

    def note_activity(self) -> None:
        """Note that a person does something: the running loop is held at once, for some seconds."""
        self._quiet_from = self._clock() + self._idle_seconds
        self._stand_still()
        self._news.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A context in which an answer is being generated."""
        self._answers += 1
        self._stand_still()
        self._news.set()
        try:
            yield
        finally:
            self._answers -= 1
            self.note_activity()

    def note_battery(self, level: float, charging: bool) -> None:
        """level: 0 to 1. A machine without a report counts as plugged in."""
        self._battery = level, charging
        self._news.set()

    def look_again(self) -> None:
        """Look again: there may be more to learn, or a switch was changed."""
        self._looked = False
        self._news.set()

    def pause(self) -> None:
        """End the running loop and start none until `resume`; it then continues from its saved progress."""
        self._paused = True
        self.look_again()

    def resume(self) -> None:
        """Allow loops to run again, also after trouble."""
        self._paused = False
        self._troubles.clear()
        self.look_again()

    def learn_now(self, name: str) -> None:
        """Run a loop once, however little waits for it and however recent its last run. Raises KeyError."""
        if name not in self.names:
            raise KeyError(name)
        self._asked.add(name)
        self._quiet_from = self._clock()
        self.resume()

    # ---- what it does about it ----

    async def _watch(self) -> None:
        while True:
            self._news.clear()
            try:
                wait = await self._look()
            except Exception as error:  # from the memory, or from work that cannot tell how much waits
                self._tell("failed", words_of(error))
                wait = LOOK_SECONDS
            try:
                async with asyncio.timeout(wait):  # wait_for may swallow that this is cancelled
                    await self._news.wait()
            except TimeoutError:
                self._looked = self._looked and wait < LOOK_SECONDS

    async def _look(self) -> float:
        """Do what is due now. Returns the seconds after which something may be due without any event."""
        if self._run is not None and self._run.task.done():
            await self._note_end(self._run)
        if self._run is not None and not self._is_on(self._run.loop):
            await self._end()
        if (why_not := self._why_not()) is not None:
            await self._end()
            self._tell(*why_not)
            return LOOK_SECONDS
        quiet = self._quiet_from - self._clock()
        if self._answers or quiet > 0:
            self._stand_still()
        else:
            self._go_on()
        if self._run is not None:
            return await self._look_after(self._run, quiet)
        if not self._looked:
            self._chosen = await self._choose()
            self._looked = True
        if self._chosen is None:
            return LOOK_SECONDS
        if self._held_since is not None:
            waits = Message("idle.something-waits", "There is something to learn. Learning waits while you use Sonata.")
            self._tell("held", waits, self._chosen.name)
            return LOOK_SECONDS if self._answers else max(quiet, 0.001)
        if not await self._only_one.take():
            self._tell(
                "elsewhere",
                Message("idle.another-learns", "Another tab or program of yours is learning; this one waits."),
                self._chosen.name,
            )
            return ELSEWHERE_SECONDS
        self._begin(self._chosen)
        return LOOK_SECONDS

    async def _look_after(self, run: _RunningLoop, quiet: float) -> float:
        if self._held_since is None:
            self._tell("running", _LEARNS, run.loop.name)
            return LOOK_SECONDS
        self._tell("held", _WAITS, run.loop.name)
        left = self._held_since + HELD_SECONDS - self._clock()
        if left <= 0:
            await self._end()
        return max(min(left, quiet) if quiet > 0 else left, 0.001)

    def _why_not(self) -> tuple[State, Words] | None:
        """Return why no loop may run; None if one may."""
        if self._policies() is None:
            return "waiting", Message("idle.no-memory", "The memory is not open.")
        if not any(self._is_on(loop) for loop in self._loops):
            return "off", Message("idle.off", "Learning in pauses is switched off.")
        if self._paused:
            return "paused", Message("idle.paused", "Learning is paused. What was learned so far is kept.")
        if self._battery is not None and not self._battery[1] and self._battery[0] < LOW_BATTERY:
            return "battery", Message(
                "idle.battery",
                "The battery is at {share}: learning waits until it is charged.",
                share=f"{self._battery[0]:.0%}",
            )
        return None

    async def _choose(self) -> Loop | None:
        """Return the loop that is to run. If there is none, the status is that of the first loop with a reason."""
        said = list[tuple[State, Words, str]]()
        for loop in self._loops:
            if not self._is_on(loop):
                continue
            trouble, until = self._troubles.get(loop.name, ("", 0.0))
            if self._clock() < until:
                said.append(("failed", trouble, loop.name))
                continue
            if loop.name in self._asked or await loop.work.is_begun():
                return loop
            waiting = await loop.work.waiting()
            if not loop.what and waiting < loop.enough:
                continue
            if not waiting:
                nothing = Message("idle.nothing-new", "There are no new {what} to learn from.", what=loop.what)
                said.append(("learned", nothing, loop.name))
            elif waiting < loop.enough:
                begins = Message(
                    "idle.not-enough",
                    "Sonata learns in a pause once there are {enough} new {what}; so far: {waiting}.",
                    enough=loop.enough,
                    what=loop.what,
                    waiting=waiting,
                )
                said.append(("waiting", begins, loop.name))
            elif 0 <= time.time() - float(str(self._value(LAST.format(loop.name), 0.0))) < loop.every:
                later = Message("idle.just-learned", "Sonata has just learned; it will continue later.")
                said.append(("waiting", later, loop.name))
            else:
                return loop
        if said:
            self._tell(*said[0])
        return None

    def _value(self, name: str, default: Value) -> Value:
        """Return the value of a policy without counting it as used: this is called all the time."""
        policies = self._policies()
        found = policies.look(name) if policies else None
        return found.value if found is not None and type(found.value) is type(default) else default

    def _is_on(self, loop: Loop) -> bool:
        policies = self._policies()
        return policies is None or policies.is_on(SWITCH.format(loop.name))

    def _begin(self, loop: Loop) -> None:
        progress = Progress(self._clock)

        def report(done: int, total: int, what: Words = "") -> None:
            progress.report(done, total, what)
            self._changed()

        task = asyncio.ensure_future(loop.work.run(report))
        task.add_done_callback(lambda _: self._news.set())
        self._run = _RunningLoop(loop, task, progress)
        self._tell("running", _LEARNS, loop.name)

    async def _note_end(self, run: _RunningLoop) -> None:
        self._run, self._looked = None, False
        self._only_one.release()
        self._troubles.pop(run.loop.name, None)
        if run.task.cancelled():
            return
        self._asked.discard(run.loop.name)
        if error := run.task.exception():
            self._troubles[run.loop.name] = words_of(error), self._clock() + LOOK_SECONDS
        elif policies := self._policies():
            await policies.set(LAST.format(run.loop.name), time.time(), confidence=1.0, source=run.loop.name)

    async def _end(self) -> None:
        """End the running loop. A held loop is released first, so that it can save its progress."""
        if (run := self._run) is not None:
            run.task.cancel()
            self._go_on()
            await asyncio.wait([run.task])
            await self._note_end(run)

    def _stand_still(self) -> None:
        if self._held_since is None:
            self._held_since = self._clock()
            self._holding.enter_context(self._hold())
            if self._run is not None:
                self._run.progress.stand_still()

    def _go_on(self) -> None:
        if self._held_since is not None:
            self._held_since = None
            self._holding.close()
            if self._run is not None:
                self._run.progress.go_on()

    def _tell(self, state: State, sentence: Words, loop: str = "") -> None:
        status = IdleStatus(state, sentence, loop)
        if status != self._status:
            self._status = status
            self._changed()
