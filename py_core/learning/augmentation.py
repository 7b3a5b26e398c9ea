"""Asks a question in many ways, so that a model that learns its answer also finds it under other words.

English only. A question in another language is asked as it was taught, in the frames, and with words left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FRAMES = (
    "{}", "Tell me: {}", "{} Tell me.", "I forgot. {}", "Do you remember? {}", "Please answer: {}",
    "Quick question: {}", "Hello! {}", "Can you help me? {}", "I need to know this: {}",
    "{} I do not remember.", "Remind me: {}",
    "One more thing. {}", "Somebody asked me: {}", "Let me ask you something. {}", "{} Please.", "So, {}", "Well, {}",
    "Question: {}", "{} Do you know?", "I wonder: {}", "Could you tell me this? {}", "My friend wants to know: {}",
    "By the way, {}", "{} It is important.", "Sorry, {}", "I have a question. {}", "{} Thanks!",
)  # fmt: skip
"""Text to put around a question."""

_OPENINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"what is the name of (.+)\?", ("how is {} called?", "name {}.", "what do we call {}?", "which name has {}?")),
    (r"what(?: is|'s) (.+)\?", ("tell me {}.", "which is {}?", "I want to know {}.", "remind me of {}.", "name {}.")),
    (r"what are (.+)\?", ("tell me {}.", "which are {}?", "name {}.", "list {}.")),
    (r"what (.+)\?", ("which thing {}?", "tell me what {}.", "do you know what {}?")),
    (r"where (.+)\?", ("in what place {}?", "at which place {}?", "tell me where {}.", "how do I find where {}?")),
    (r"when (.+)\?", ("at what time {}?", "on which day {}?", "tell me when {}.", "what is the date when {}?")),
    (r"who (.+)\?", ("which person {}?", "tell me who {}.", "what is the name of the one who {}?", "name who {}.")),
    (r"how many (.+)\?", ("what number of {}?", "tell me how many {}.", "count {}.")),
    (r"how much (.+)\?", ("what amount {}?", "tell me how much {}.")),
    (r"how (.+)\?", ("in what way {}?", "tell me how {}.", "what is the way {}?")),
    (r"why (.+)\?", ("for what reason {}?", "tell me why {}.", "what is the reason that {}?")),
    (r"which (.+)\?", ("what {}?", "tell me which {}.", "name the {}.")),
    (r"(?:do|does|did|is|are|can|was|were|has|have) (.+)\?", ("tell me about {}.", "what about {}?")),
)
"""Beginnings of questions, each with alternatives."""

_SYNONYMS = """
keep store put leave hold; kept stored put held; begin start open; begins starts opens; end finish close stop;
buy get purchase; bought got purchased; big large huge; small little tiny; house home place; car vehicle auto;
doctor physician medic; child kid; children kids; mother mum mom; father dad; grandmother grandma gran;
grandfather grandpa; street road lane; job work profession; boss manager chief; dog hound pup; cat kitty;
meal food dish; dinner supper; phone telephone mobile; number figure; name title; password passcode code pin;
wifi internet wireless network; favourite preferred best; favorite preferred best; meeting appointment session;
trip journey tour; holiday vacation; picture photo image; movie film; money cash; price cost; costs charges;
shop store market; bicycle bike; boat ship vessel; plane aircraft; room chamber; kitchen cookhouse; garden yard;
teacher tutor instructor; pupil student; friend mate buddy; husband partner; wife partner; repair fix mend;
fixed repaired mended; broken damaged; bin rubbish trash; rubbish garbage trash waste; key keys; box case container;
cupboard cabinet closet; drawer tray; shelf rack; bag sack; clothes clothing; medicine drug pills; sick ill unwell;
talk speak; say tell; said told; show display; help assist; need require want; needs requires wants; like love enjoy;
hate dislike; eat have consume; eats gets has; drink sip; sleep rest; live stay reside; lives stays resides;
come arrive; comes arrives; go travel; goes travels; leave depart; leaves departs; meet see; give hand; gave handed;
sent mailed posted; send mail post; write note; wrote noted; read look; look search; find locate see; found located;
use employ take; used employed taken; make build create; made built created; born delivered; birthday birthdate;
day date; time hour; year season; autumn fall; morning dawn; evening night; last latest recent final; next following;
first initial; old aged; new fresh; usual normal regular; usually normally; always ever; emergency urgent; spare extra;
main chief; secret hidden private; hidden concealed; colour color shade; size measure; length extent; rule law;
group team; team group crew; firm company business; company firm business; office workplace; contract agreement;
bill invoice; pay settle; paid settled; owner holder; neighbour neighbor; town city; country nation; river stream;
road way route; way path; train railway; bus coach; station stop; ticket pass; bread loaf; recipe formula; tea brew;
coffee brew; flower blossom; tree plant; plant grow; water moisten; wash clean; clean tidy; lamp light; heating heater;
window pane; door entrance; roof top; wall side; machine device; device machine gadget; computer laptop pc;
file document; paper sheet; letter mail; address place; allergic sensitive; favourites preferences; project task;
task job; plan scheme
"""

_GROUPS = tuple(tuple(group.split()) for group in _SYNONYMS.replace("\n", " ").split(";"))

_EMPTY_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was were be do does did has have had of to in on at for with and or that this it we i you",
    )
)
"""Words that a search query would leave out."""


@dataclass(frozen=True)
class Mix:
    """How often a question is asked in each way. The numbers need not add up to 1.

    framed: inside one of FRAMES. opened: with another beginning. synonyms: with words of similar meaning. dropped: each
    word is left out with the probability `drop`. mixed: with its words in another order. keywords: without function
    words. sampled: in the model's own words. All but the first may also be framed, half of the time.
    """

    plain: float = 0.5
    framed: float = 0.2
    opened: float = 1.0
    synonyms: float = 1.0
    dropped: float = 2.0
    mixed: float = 0.5
    keywords: float = 0.3
    sampled: float = 4.0
    drop: float = 0.4


class RandomAsker:
    """Asks in the proportions of a mix. The result depends only on the generator that is passed in."""

    def __init__(self, mix: Mix) -> None:
        self._mix = mix
        self._ways = ("plain", "framed", "opened", "synonyms", "dropped", "mixed", "keywords", "sampled")
        shares = np.array([getattr(mix, way) for way in self._ways], np.float64)
        self._shares = shares / shares.sum()

    def ask(self, question: str, draw: np.random.Generator, sampled: Sequence[str] = ()) -> str:
        """Ask the question in one way. sampled: other wordings for `Mix.sampled`; without them it is framed."""
        way = self._ways[int(draw.choice(len(self._ways), p=self._shares))]
        if way == "plain":
            return question
        if way == "framed" or (way == "sampled" and not sampled):
            return _framed(question, draw)
        if way == "sampled":
            found = _any_of(sampled, draw)
        elif way == "opened":
            found = opened(question, draw)
        elif way == "synonyms":
            found = with_synonyms(opened(question, draw) if draw.random() < 0.5 else question, draw)
        elif way == "dropped":
            found = dropped(question, draw, self._mix.drop)
        elif way == "mixed":
            words = question.rstrip("?.! ").split()
            found = " ".join(words[int(at)] for at in draw.permutation(len(words)))
        else:
            found = keywords(question)
        return _framed(found, draw) if draw.random() < 0.5 else found


def _any_of(texts: Sequence[str], draw: np.random.Generator) -> str:
    return texts[int(draw.integers(len(texts)))]


def _framed(question: str, draw: np.random.Generator) -> str:
    frame = _any_of(FRAMES[1:], draw)
    return frame.format(question)


def opened(question: str, draw: np.random.Generator) -> str:
    """The question with another beginning, if its own beginning is a known one."""
    for pattern, others in _OPENINGS:
        if found := re.fullmatch(pattern, question.strip(), re.IGNORECASE):
            text = _any_of(others, draw).format(found[1])
            return text[:1].upper() + text[1:]
    return question


def with_synonyms(question: str, draw: np.random.Generator) -> str:
    """The question with half of the words that have synonyms replaced by one."""

    def other(match: re.Match[str]) -> str:
        word = match[0].lower()
        choices = sorted({each for group in _GROUPS if word in group for each in group} - {word})
        return _any_of(choices, draw) if choices and draw.random() < 0.5 else match[0]

    return re.sub(r"[A-Za-z]+", other, question)


def dropped(question: str, draw: np.random.Generator, share: float) -> str:
    """The question without some of its words; at least one stays."""
    words = question.split()
    kept = [word for word in words if draw.random() >= share]
    return " ".join(kept or [words[int(draw.integers(len(words)))]])


def keywords(question: str) -> str:
    """The question without its function words, or all of its words if it has no others."""
    words = [word.strip("?.,!") for word in question.split()]
    return " ".join(word for word in words if word.lower() not in _EMPTY_WORDS) or question
