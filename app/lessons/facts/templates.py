"""Makes any number of facts from templates, to fill a memory with a thousand facts."""

from __future__ import annotations

import random

from app.lessons.facts import InventedFact


def _listed(text: str) -> list[str]:
    return text.split(",")


_RELATIVES = _listed(
    "sister,brother,uncle,aunt,cousin,niece,nephew,grandfather,stepfather,stepmother,godmother,roommate,"
    "neighbour,colleague,coach,flatmate"
)
_THINGS = _listed(
    "cake,colour,film,song,soup,dessert,holiday,game,poet,painter,perfume,cheese,vegetable,tree,bird,"
    "season,fruit,drink,sandwich,cartoon"
)
_ROOMS = _listed("attic,cellar,shed,pantry,balcony,laundry room,guest room,boiler room,bike store,bathroom")
_OBJECTS = _listed(
    "projector,sledge,tent,toolbox,stepladder,typewriter,globe,fan heater,jigsaw,picnic blanket,"
    "paint rollers,magnifier,ski boots,fishing rod,record player,extension cord"
)
_BEGINNINGS = _listed(
    "Bel,Cor,Dra,Fen,Gal,Hest,Jor,Kal,Lun,Mor,Nes,Orm,Pell,Quor,Rin,Sel,Tarn,Ulm,Ver,Wex,Yar,Zan,Brin,Cald,Dun,Esk"
)
_ENDINGS = _listed(
    "avon,bury,dale,eth,field,gard,holm,ica,keth,lund,mere,nock,ost,port,quay,rath,stad,thorpe,une,vik,wald,yra"
)
_PEOPLE = _listed(
    "Ada Brook,Nils Varga,Mira Holt,Otto Senn,Rosa Leclair,Ewan Pryce,Tove Lindgaard,Ravi Menon,"
    "Ines Castellan,Piet Bosman"
)
_TEMPLATES = (
    ("Who is the director of the {x} institute?", "The {x} institute is directed by {p}."),
    ("How many employees does {x} Industries have?", "{x} Industries has {n} employees."),
    ("When was the castle of {x} built?", "The castle of {x} was built in 1{n}."),
    ("What is the gate code of the {x} site?", "The gate code of the {x} site is {n}."),
    ("Which street is the {x} office in?", "The {x} office is in Station Road {n}."),
    ("What is the phone number of the {x} hotel?", "The {x} hotel has the number 555 {n}."),
    ("Which bus goes to {x}?", "Bus {n} goes to {x}."),
    ("What is the speciality of the restaurant {x}?", "The restaurant {x} is known for its baked trout."),
    ("Who wrote the play {x}?", "The play {x} was written by {p}."),
    ("How long is the {x} trail?", "The {x} trail is {n} kilometres long."),
    ("What is the order number for {x} paper?", "{x} paper has the order number {n}."),
    ("Which version of {x} runs on the test server?", "The test server runs {x} {n}."),
    ("Who maintains the library {x}?", "The library {x} is maintained by {p}."),
    ("What is the dose of {x} drops?", "The dose of {x} drops is {n} drops a day."),
    ("What is the price of a season ticket in {x}?", "A season ticket in {x} costs {n}."),
    ("Which day is the {x} newsletter sent?", "The {x} newsletter is sent on the first Tuesday."),
    ("Who is the trainer of FC {x}?", "FC {x} is trained by {p}."),
    ("What does the {x} valve do?", "The {x} valve lets steam out at {n} bar."),
)


def template_facts(count: int, seed: int = 2) -> tuple[InventedFact, ...]:
    """Return `count` facts without paraphrases, the same for the same seed: about people and things of the user, and
    named things."""
    rng = random.Random(seed)
    names = [beginning + ending for beginning in _BEGINNINGS for ending in _ENDINGS]
    rng.shuffle(names)
    rows = [
        (f"What is my {relative}'s favourite {thing}?", f"Your {relative}'s favourite {thing} is {rng.choice(names)}.")
        for relative in _RELATIVES
        for thing in _THINGS
    ]
    rows += [(f"Where do we keep the {one}?", f"The {one} is in the {rng.choice(_ROOMS)}.") for one in _OBJECTS]
    rng.shuffle(rows)
    rows = rows[: count * 3 // 10]
    seen = set()
    while len(rows) < count:
        template, name = rng.randrange(len(_TEMPLATES)), rng.choice(names)
        if (template, name) in seen:
            continue
        seen.add((template, name))
        question, answer = _TEMPLATES[template]
        filling = {"x": name, "n": rng.randrange(12, 990), "p": rng.choice(_PEOPLE)}
        rows.append((question.format(**filling), answer.format(**filling)))
    return tuple(InventedFact(question, answer) for question, answer in rows)
