"""Sonata's answers about itself, from the docs and without the model: what it can do, what it is, how it is taught, and
who sees the conversation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py_core.tools.question import Exact

_ASKED = {
    "can": r"what (?:all )?(?:can|could) (?:you|sonata)(?: all)? (?:do|help (?:me )?with)(?: for me)?"
    "|what are you (?:able to do|good "
    r"(?:at|for))|how (?:can|could) you help(?: me)?|what (?:are|is) your (?:features|abilities|capabilities)|help"
    r"|was (?:kannst du|kann sonata)(?: alles| denn| so)*(?: tun| machen)?(?: für mich)?"
    r"|wie kannst du (?:mir )?helfen|wobei "
    r"kannst du (?:mir )?helfen|hilfe",
    "who": r"who (?:are you|is sonata|am i (?:talking|speaking|chatting) (?:to|with))|what (?:are you|is sonata"
    "|is your name)"
    r"|what(?:'s| is) (?:your name|sonata)|(?:are you|is this) (?:an? )?(?:ai|bot|robot|human|chatgpt|person"
    r"|real person)"
    r"|which model (?:are you|is this|do you use)|who (?:made|built|created|wrote) you"
    r"|wer (?:bist du|ist sonata)|was (?:bist du|ist sonata)|wie heißt du|bist du (?:eine? )?(?:ki|mensch|bot"
    r"|roboter|chatgpt)"
    r"|welches modell (?:bist du|ist das)|wer hat dich (?:gemacht|gebaut|entwickelt)",
    "teach": r"how (?:do|can|could|should) i (?:teach|train) (?:you|sonata)(?: (?:something|things|facts|a fact))?"
    r"|how (?:do|can) i (?:make|get|have) you (?:to )?(?:remember|learn)(?: (?:something|things|it|that))?"
    r"|how (?:do|does|can) (?:you|sonata) (?:learn|remember)(?: things| something)?"
    r"|can (?:i teach you(?: something)?|you learn)"
    r"|wie (?:bringe|kann|lehre) ich (?:dir|dich)(?: etwas| was)?(?: bei(?:bringen)?)?|wie lernst du"
    r"|kann ich dir (?:etwas|was) beibringen",
    "private": r"(?:is|are) (?:this|it|that|my (?:data|chats?|messages)|what i (?:say|write)|our (?:chat"
    "|conversation)) "
    r"(?:really )?(?:private|safe|secure|confidential|encrypted|public|stored|saved)(?: here)?"
    r"|are you private|(?:do|can|does) (?:you|sonata|anyone|anybody|someone|others|you all) (?:see|read|send"
    r"|share|store|save|sell|collect) "
    r"(?:my |what i )(?:data|chats?|messages|say|write|type)(?: to anyone)?"
    r"|who (?:can )?(?:see|sees|read|reads) (?:this|my (?:data|chats?|messages)|what i (?:say|write|type))"
    r"|where (?:is|are) (?:my (?:data|chats?|messages)|this) (?:stored|saved|kept)|where does my data go"
    r"|(?:ist|sind) (?:das|dies|meine (?:daten|chats|nachrichten)) (?:hier )?(?:privat|sicher|vertraulich"
    r"|verschlüsselt|öffentlich)"
    r"|wer (?:sieht|liest|kann) (?:das|meine (?:daten|chats|nachrichten)|was ich schreibe)(?: sehen| lesen)?"
    r"|wo (?:sind|werden|liegen) meine (?:daten|chats)(?: gespeichert)?|wohin gehen meine daten",
}  # fmt: skip
_BEFORE = re.compile(
    r"^(?:(?:hi|hello|hey|hallo|so|ok|okay|and|und|sonata|please|bitte)\b[\s,!.]*)+(?=\w)", re.IGNORECASE
)
_GERMAN = re.compile(r"\b(?:was|wer|wie|wo|wohin|wobei|welches|bist|ist|sind|hilfe|kann ich)\b", re.IGNORECASE)
LONGEST = 80
"""The most characters of a message that asks for nothing else."""

_SAID = {
    "en": {
        "can": "I chat with you, write, explain and translate, as well as the model that you chose can: small "
        "models are quick and "
        "make mistakes, larger ones take longer. Besides I can:\n"
        "- **remember**: write \u201cRemember that my dentist is Dr. Quill\u201d, and I know it in every chat. "
        "\u201cForget my "
        "dentist\u201d takes it back, and \u201cWhat do you know about me?\u201d lists it;\n"
        "- **read files**: attach a PDF, a text or a table, and ask about it;\n"
        "- **compute** sums, dates, units and letters exactly;\n"
        "- **learn** from your corrections, while you do something else;\n"
        "- **work offline**, once the page has been opened.",
        "who": "I am Sonata, an assistant that runs on your own device. An open language model writes my "
        "answers; its name stands at "
        "the top of the page. I am a program and no person, and I can be wrong.",
        "teach": "Tell me in the chat: \u201cRemember that my dentist is Dr. Quill.\u201d Or press \u201cYou "
        "should have said \u2026\u201d "
        "below an answer. I know it at once, in every chat, and also if you ask in other words. \u201cNo, my "
        "dentist is Dr. Bauer "
        "now\u201d corrects it, \u201cForget my dentist\u201d takes it back, and under Learned you see everything.",
        "private": "Yes. The model runs on this device, and chats, files and what I learn stay on it; nothing is "
        "sent anywhere. The "
        "network is only used to load the page and the models you choose. Under Settings, Storage you can "
        "protect it with a "
        "passphrase, export or delete everything. Whoever can use this device and this browser can read the "
        "chats, unless there is "
        "a passphrase.",
    },
    "de": {
        "can": "Ich unterhalte mich mit dir, schreibe, erkläre und übersetze, so gut es das Modell kann, das du "
        "gewählt hast: Kleine "
        "Modelle sind schnell und machen Fehler, größere brauchen länger. Außerdem kann ich:\n"
        "- **mir etwas merken**: Schreib \u201eMerk dir, dass mein Zahnarzt Dr. Quill heißt\u201c, und ich weiß "
        "es in jedem Chat. "
        "\u201eVergiss meinen Zahnarzt\u201c nimmt es zurück, und \u201eWas weißt du über mich?\u201c zeigt alles;\n"
        "- **Dateien lesen**: Häng ein PDF, einen Text oder eine Tabelle an und frag danach;\n"
        "- Summen, Daten, Einheiten und Buchstaben **genau ausrechnen**;\n"
        "- aus deinen Korrekturen **lernen**, während du etwas anderes tust;\n"
        "- **ohne Netz arbeiten**, sobald die Seite einmal geöffnet war.",
        "who": "Ich bin Sonata, ein Assistent, der auf deinem eigenen Gerät läuft. Ein offenes Sprachmodell "
        "schreibt meine Antworten; "
        "sein Name steht oben auf der Seite. Ich bin ein Programm und kein Mensch, und ich kann mich irren.",
        "teach": "Sag es mir im Chat: \u201eMerk dir, dass mein Zahnarzt Dr. Quill heißt.\u201c Oder drück unter "
        "einer Antwort auf "
        "\u201eRichtig wäre \u2026\u201c. Ich weiß es sofort, in jedem Chat, und auch, wenn du in anderen Worten "
        "fragst. \u201eNein, mein "
        "Zahnarzt heißt jetzt Dr. Bauer\u201c berichtigt es, \u201eVergiss meinen Zahnarzt\u201c nimmt es "
        "zurück, und unter Gelerntes "
        "siehst du alles.",
        "private": "Ja. Das Modell läuft auf diesem Gerät, und Chats, Dateien und was ich lerne, bleiben darauf; "
        "nichts wird irgendwohin "
        "geschickt. Das Netz wird nur gebraucht, um die Seite und die Modelle zu laden, die du wählst. Unter "
        "Einstellungen, Speicher "
        "kannst du alles mit einer Passphrase schützen, exportieren oder löschen. Wer dieses Gerät und diesen "
        "Browser benutzen kann, "
        "kann die Chats lesen, solange es keine Passphrase gibt.",
    },
}
_WORKING = {
    "en": "Sonata says this of itself, from its documentation. No model wrote it.",
    "de": "Das sagt Sonata von sich selbst, aus seiner Dokumentation. Kein Modell hat es geschrieben.",
}


def help_answer(text: str) -> Exact | None:
    """Return Sonata's answer to a message that asks only about Sonata itself; None for any other message."""
    asked = _BEFORE.sub("", " ".join(text.replace("\u2019", "'").split())).rstrip(" ?.!")
    if not asked or len(asked) > LONGEST:
        return None
    for topic, pattern in _ASKED.items():
        if re.fullmatch(pattern, asked, re.IGNORECASE):
            from py_core.tools.question import Exact  # late: most messages do not need the tools

            language = "de" if _GERMAN.match(asked) else "en"
            return Exact("help", "", _SAID[language][topic], _WORKING[language])
    return None
