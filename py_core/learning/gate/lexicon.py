"""The words by which the gate of lessons sees what a question asks for, in English and in German."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PERSON, TIME, PLACE, REASON, WAY, AMOUNT, WHAT = range(1, 8)
"""Kinds of things that are asked for."""


@dataclass(frozen=True)
class Lexicon:
    """asked_of: question words and their kinds. how, which: question words whose kind the next word tells, `counted` or
    `noun_asks`. my, mine, yours: whose it is. tasks: a message that begins with one of these words wants something
    made, not remembered. small: words that say little about what is asked for. kind_of: the group of a word, and its
    place there: other places of the group exclude it. names_by_capitals: in the middle of a sentence only names and "I"
    begin with a capital letter."""

    asked_of: Mapping[str, int]
    how: frozenset[str]
    which: frozenset[str]
    counted: frozenset[str]
    noun_asks: Mapping[str, int]
    my: frozenset[str]
    mine: frozenset[str]
    yours: frozenset[str]
    indefinite: frozenset[str]
    tasks: frozenset[str]
    small: frozenset[str]
    kind_of: Mapping[str, tuple[int, int]]
    names_by_capitals: bool


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _kinds(of: Mapping[int, str]) -> dict[str, int]:
    return {word: kind for kind, words in of.items() for word in words.split()}


def _groups(lines: Sequence[str]) -> dict[str, tuple[int, int]]:
    """One group a line: words that exclude each other; words joined by / mean the same."""
    return {
        word: (kind, which)
        for kind, line in enumerate(lines)
        for which, group in enumerate(line.split())
        for word in group.split("/")
    }


SMALL = _set(
    "the a an of to in on at is are was were be been am do does did have has had i my our i we you your me us it its "
    "for and or with by from that this there what which who whom whose when where why how tell name please can could "
    "would should give need want know say"
)
ENGLISH = Lexicon(
    asked_of=_kinds({PERSON: "who whom whose", TIME: "when", PLACE: "where", REASON: "why"}),
    how=_set("how"),
    which=_set("what which"),
    counted=_set("many much long old far high fast often large big tall heavy expensive hot deep"),
    noun_asks=_kinds({
        PERSON: "person man woman colleague professor doctor", TIME: "time day date year month hour weekday",
        PLACE: "place town address spot",
    }),
    my=_set("my our"),
    mine=_set("my our i we me us mine"),
    yours=_set("your yours yourself"),
    indefinite=_set("a an"),
    tasks=_set(
        "write draft compose translate summarise summarize rewrite suggest invent correct convert design shorten "
        "create generate list plan help"
    ),
    small=SMALL,
    kind_of=_groups((
        "monday tuesday wednesday thursday friday saturday sunday",
        "january february march april may june july august september october november december",
        "spring summer autumn/fall winter",
        "breakfast lunch dinner/supper",
        "morning afternoon evening noon night",
        "first second third fourth fifth last next previous",
        "up/upstairs/above down/downstairs/below",
        "red blue green yellow black white orange purple grey brown",
        "open/opens/opening close/closes/closing/shut",
        "start/starts/begin/begins end/ends/finish",
        "old/older young/younger new/newer",
        "left right",
        "north south east west",
        "brother/brothers sister/sisters mother/mum/mom/mothers father/dad uncle aunt/auntie cousin daughter/girl "
        "son/boy wife husband grandmother/grandma/granny grandfather/grandpa niece nephew",
        "cat/kitty/cats dog/puppy/dogs parrot rabbit/rabbits horse hamster fish goat",
        "wet dry",
        "hot cold/warm",
        "big/large small/little",
        "front back/rear",
        "indoor outdoor",
        "male female",
        "buy/bought sell/sold",
        "win/won lose/lost",
        "production/prod staging/stage test/testing",
        "name/called birthday/born age address phone/number password colour/color price/cost",
    )),
    names_by_capitals=True,
)  # fmt: skip
GERMAN = Lexicon(
    asked_of=_kinds({
        PERSON: "wer wen wem wessen", TIME: "wann", PLACE: "wo wohin woher", REASON: "warum wieso weshalb wozu",
        WHAT: "womit wofür worauf worüber woran wodurch worin",
    }),
    how=_set("wie"),
    which=_set("was welche welcher welches welchen welchem"),
    counted=_set(
        "viel viele vielen oft lange weit hoch groß schwer teuer schnell alt tief heiß warm breit laut spät häufig "
        "dick"
    ),
    noun_asks=_kinds({
        PERSON: "person mann frau kollege kollegen kollegin arzt ärztin", PLACE: "ort stadt adresse stelle platz dorf",
        TIME: "zeit uhrzeit tag tage tagen datum jahr jahre monat monate stunde wochentag zeitpunkt",
    }),
    my=_set("mein meine meinen meinem meiner meines unser unsere unseren unserem unserer unseres"),
    mine=_set(
        "ich wir mich mir uns mein meine meinen meinem meiner meines unser unsere unseren unserem unserer unseres"
    ),
    yours=_set("dein deine deinen deinem deiner deines"),
    indefinite=_set("ein eine einen einem einer eines"),
    tasks=_set(
        "schreib schreibe verfasse entwirf formuliere übersetz übersetze fass fasse kürze korrigier korrigiere "
        "erfinde erstell erstelle erzeug erzeuge plan plane hilf erzähl erzähle zeichne"
    ),
    small=_set(
        "der die das den dem des ein eine einen einem einer eines von zu zum zur in im ins an am auf aus bei mit nach "
        "vor für über unter um ist sind war waren bin bist sein wird werden wurde wurden hat habe haben hatte ich "
        "mein meine meinen meinem meiner unser unsere unseren unserem unserer wir du dein deine deinen mir mich uns "
        "es sich und oder als dass dieser diese dieses da dort was welche welcher welches welchen welchem wer wen wem "
        "wessen wann wo wohin woher warum wieso wie sag nenn gib bitte kann kannst könnte soll sollte muss brauche "
        "will weiß noch denn mal"
    ),
    kind_of=_groups((
        "montag/montags dienstag/dienstags mittwoch/mittwochs donnerstag/donnerstags freitag/freitags samstag/samstags "
        "sonntag/sonntags",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "frühling/frühjahr sommer herbst winter",
        "frühstück mittagessen abendessen",
        "morgen/morgens nachmittag/nachmittags abend/abends mittag/mittags nacht/nachts",
        "erste/ersten/erster zweite/zweiten/zweiter dritte/dritten/dritter letzte/letzten/letzter "
        "nächste/nächsten/nächster",
        "oben/rauf unten/runter",
        "rot/rote blau/blaue grün/grüne gelb/gelbe schwarz/schwarze weiß/weiße orange lila grau/graue braun/braune",
        "öffne/öffnet/öffnen/aufmachen schließe/schließt/schließen/zumachen",
        "anfang/beginnt/beginn/beginnen ende/endet/enden",
        "alt/alte/älter/ältere/älteste jung/junge/jünger/jüngere neu/neue",
        "links/linke/linken rechts/rechte/rechten",
        "norden süden osten westen",
        "bruder/brüder schwester/schwestern mutter/mama vater/papa onkel tante cousin/cousine tochter sohn frau mann "
        "großmutter/oma großvater/opa nichte neffe",
        "katze/katzen hund/hunde papagei kaninchen pferd hamster fisch ziege",
        "nass trocken",
        "heiß kalt/kalte/warm",
        "groß/große/größte klein/kleine/kleinste",
        "vorne/vorder hinten/hinter",
        "drinnen draußen",
        "männlich weiblich",
        "kaufen/kauft/gekauft verkaufen/verkauft",
        "gewinnen/gewinnt/gewonnen verlieren/verliert/verloren",
        "name/heißt geburtstag/geboren alter adresse telefon/nummer passwort farbe preis/kostet/kosten",
    )),
    names_by_capitals=False,
)  # fmt: skip
_ONLY_ENGLISH = ENGLISH.small - GERMAN.small
_ONLY_GERMAN = GERMAN.small - ENGLISH.small
_GERMAN_LETTERS = _set("ä ö ü ß")


def lexicon_of(words: Sequence[str]) -> Lexicon:
    """The lexicon of a text's language, from its words in lower case. English, unless more of the words are German."""
    english = sum(word in _ONLY_ENGLISH for word in words)
    german = sum(word in _ONLY_GERMAN for word in words)
    if german == english == 0:
        is_german = words[:1] == ["was"] or any(not _GERMAN_LETTERS.isdisjoint(word) for word in words)
        return GERMAN if is_german else ENGLISH
    return GERMAN if german > english else ENGLISH
