"""The English words by which lessons.py and english.py recognize the parts of a statement."""

from __future__ import annotations


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


PEOPLE = words_of(
    "dentist doctor gp surgeon nurse vet boss manager supervisor chief director ceo cto president chairman chairwoman "
    "leader head owner founder landlord landlady tenant neighbour neighbor friend brother sister mother father mum mom "
    "dad grandmother grandfather grandma grandpa aunt uncle cousin niece nephew son daughter wife husband partner "
    "girlfriend boyfriend fiancee fiance godfather godmother parents teacher tutor professor coach trainer therapist "
    "lawyer accountant adviser advisor agent plumber electrician gardener cleaner babysitter nanny barber hairdresser "
    "colleague coworker assistant secretary contact author writer singer mayor king queen captain designer architect "
    "developer maintainer reviewer editor sponsor mentor roommate flatmate ex-wife ex-husband mother-in-law "
    "father-in-law brother-in-law sister-in-law stepmother stepfather stepbrother stepsister hero "
    "man woman guy girl boy person lady gentleman"
)
"""Questions about these begin with who."""

EVENTS = words_of(
    "birthday anniversary appointment meeting wedding concert deadline party exam flight train ferry bus dinner lunch "
    "breakfast lesson class course interview holiday vacation trip game match rehearsal call stand-up standup review "
    "inspection delivery checkup check-up graduation show festival conference due launch release market"
)
"""Questions about these begin with when."""

PLACES = words_of(
    "in at on under behind near inside beside below above beneath between opposite outside within upstairs downstairs "
    "over across underneath"
)
TIMES = words_of(
    "monday mondays tuesday tuesdays wednesday wednesdays thursday thursdays friday fridays saturday saturdays sunday "
    "sundays january february march april may june july august september october november december today tomorrow "
    "yesterday tonight noon midnight morning afternoon evening weekend weekends weekday weekdays o'clock am pm spring "
    "summer autumn winter easter christmas daily weekly monthly yearly week month year"
)
MONEY = words_of("euro euros dollar dollars pound pounds crown crowns cent cents franc francs yen")
TITLES = words_of("dr dr. mr mr. mrs mrs. ms ms. prof prof. professor doctor sir lady uncle aunt father mother")

BE = words_of("is are am was were")
MODALS = words_of("can could must should will would may might cannot can't won't shouldn't mustn't couldn't")
RELATIVE = words_of("who that which where whom whose")

THIRD_PERSON = words_of(
    "lives works likes loves hates prefers wants needs eats drinks drives plays speaks studies owns uses wears reads "
    "collects teaches sells costs starts begins opens closes ends leaves arrives departs takes means weighs contains "
    "keeps parks sleeps knows believes supports goes comes gets gives makes says calls runs stands lies sits stays "
    "belongs cuts fixes cleans cooks bakes listens watches follows visits meets pays saves owes reviews leads approves "
    "holds shows serves rides swims grows hides stores sends fits expires happens rehearses earns rents travels "
    "enjoys dislikes fears misses plans hopes dreams sings dances paints writes builds repairs feeds walks helps "
    "publishes ships deploys listens rhymes stinks smells sounds looks tastes feels turns lasts measures "
    "hangs flies lands boils freezes melts"
)
"""Verbs in statements about a third person; without their s also in statements about the speaker."""

PARTICLES = words_of("out up off down back away over along together")
"""They belong to the verb before: for "the bins go out" the question is when they go out."""

IRREGULAR_BASES = {"goes": "go", "has": "have", "does": "do", "flies": "fly", "studies": "study", "watches": "watch",
                   "teaches": "teach", "misses": "miss", "publishes": "publish", "lies": "lie"}  # fmt: skip
BASES = frozenset(IRREGULAR_BASES.get(verb, verb[:-1]) for verb in THIRD_PERSON)
PAST: dict[str, str] = {
    "bought": "buy", "met": "meet", "went": "go", "put": "put", "got": "get", "gave": "give", "took": "take",
    "saw": "see", "ate": "eat", "left": "leave", "made": "make", "said": "say", "told": "tell", "wrote": "write",
    "read": "read", "drove": "drive", "flew": "fly", "ran": "run", "began": "begin", "came": "come", "had": "have",
    "kept": "keep", "knew": "know", "lost": "lose", "paid": "pay", "sold": "sell", "sent": "send", "slept": "sleep",
    "spent": "spend", "taught": "teach", "thought": "think", "won": "win", "wore": "wear", "found": "find",
    "hid": "hide", "held": "hold", "grew": "grow", "built": "build", "chose": "choose", "fell": "fall",
    "forgot": "forget", "broke": "break", "sang": "sing", "spoke": "speak", "stole": "steal", "swam": "swim",
    "lent": "lend", "did": "do", "became": "become",
}  # fmt: skip
