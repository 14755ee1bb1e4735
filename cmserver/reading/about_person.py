"""Finds what a prompt says about how an agent shall speak with its person: "answer me in German", "I prefer short answers".

Such a sentence is the person's own taste, not the project's rule. It is recognised by what it speaks of, and by having no word
besides those that such sentences are made of: one that names anything else, as "keep your answers short and use tabs in Go files"
does, stays what it was. English, German, French and Spanish.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cmserver.reading.own_words import BULLET, announces, own_blocks
from cmserver.reading.phrases import find_phrase

_MAX_CHARS = 1_200
"""Of a prompt: who writes more describes something."""
_MAX_READ_CHARS = 10_000
_MAX_SENTENCES = 10
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
_MARKS = re.compile(r"\*\*|__")
_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_FEW = re.compile(r"\d{1,2}")


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


_LANGUAGES = _words(
    "english german french spanish italian portuguese dutch polish russian chinese japanese korean turkish arabic englisch",
    "deutsch französisch spanisch italienisch portugiesisch niederländisch polnisch russisch chinesisch japanisch anglais",
    "allemand français espagnol italien portugais néerlandais polonais russe chinois japonais inglés alemán francés español",
    "italiano portugués neerlandés polaco ruso chino japonés castellano",
)
_STANDING = _words(
    "always never ever anymore immer nie niemals künftig grundsätzlich stets toujours jamais désormais dorénavant siempre nunca",
    "jamás",
)
_MANNERS = _words(
    "short shorter brief briefly concise concisely terse long longer detailed simple plain formal formally informal casual",
    "friendly polite direct blunt honest emoji emojis bullet bullets examples sentence sentences paragraph paragraphs word",
    "words jargon jokes humour humor flattery praise preamble filler apologies tone style name kurz kurze kurzen kürzer",
    "knapp knappe knappen ausführlich ausführliche ausführlichen lang lange langen einfach einfache direkt ehrlich höflich",
    "förmlich locker freundlich sachlich stichpunkte stichpunkten beispiele beispielen satz sätze sätzen lob ton stil court",
    "courte courtes brève brèves bref concis concises longue longues détaillé détaillée détaillées simples directe directes",
    "poli formel exemples phrase phrases émojis flatterie corta cortas corto breve breves conciso concisa concisas largo",
    "largas detallado detallada detalladas sencillo sencillas directo directas directa ejemplos frase frases jerga halagos",
    "tono estilo",
)
_OTHERS = _words(
    # English
    "please and but or not no don't do only to on in with without of at most me my mine i i'd i'm you your would like",
    "prefer want need love hate answer answers answering reply replies respond response responses speak speaking talk",
    "talking write explanations explanation keep make be stay use give that should must a an when",
    "if possible also instead rather than over more less very one two three four five few any all hi thanks remember",
    # German
    "bitte und aber oder nicht kein keine keinen zu nur mehr auf in mit ohne mir mich mein ich möchte",
    "will mag hätte gern gerne lieber bevorzuge wünsche hasse antworte antworten antwortest sprich sprichst rede schreib",
    "schreibe deine deinen deiner ihre ihren du sie sein erklärungen sei bleib halte halt",
    "fass dich sich sollen sollten müssen ein eine einem einen wenn als statt sehr zwei drei duze duz sieze siez merk",
    "dir dass",
    # French
    "s'il te vous plaît et mais ou ne pas plus uniquement seulement de d'un d'une des les en avec sans moi me je j'aimerais",
    "préfère veux voudrais aime déteste réponds répondez réponse réponses parle parlez écris écrivez tes vos ta tu",
    "explications sois soyez reste restez tutoie vouvoie un une deux trois quand on plutôt que moins très garde",
    "gardez doivent être retiens",
    # Spanish
    "por favor y e pero o no solo sólo de a en con sin me mi yo prefiero quiero quisiera gustan gusta odio respóndeme",
    "respondeme responde contéstame contestame contesta háblame hablame habla escríbeme escribeme respuesta respuestas tus",
    "sus tu explicaciones sé sea mantén tutéame tuteame trátame usted tú un una dos tres cuando que vez menos más",
    "muy deben ser recuerda",
)
_KNOWN = _LANGUAGES | _STANDING | _MANNERS | _OTHERS
_FROM_NOW_ON = re.compile(
    r"\b(?:from now on|ab (?:jetzt|sofort)|von (?:jetzt|nun) an|à partir de maintenant|a partir de ahora|de ahora en adelante)\b"
)
"""Read as "always": "now" alone is of the moment."""
_HOW_EN = r"(?:(?:me|to me|with me|only|always|never|please) ){0,3}"
_HOW_DE = r"(?:(?:mir|mit mir|bitte|nur|always|immer|nie|niemals|stets|künftig|nicht|mehr) ){0,4}"
_HOW_FR = r"(?:(?:moi|always|toujours|jamais|plus|désormais|uniquement|seulement) ){0,3}"
_HOW_ES = r"(?:(?:always|siempre|nunca|solo|sólo|por favor) ){0,3}"
_SPEAKS = re.compile(
    r"\b(?:(?:answer|reply|respond|speak|talk)(?: to| with)? me"
    rf"|(?<!an )(?<!one )(?<!your )(?:answer|reply|respond|speak|talk) {_HOW_EN}in|write (?:to )?me {_HOW_EN}in"
    r"|be (?:\w+ )?(?:brief|concise|terse|direct|blunt|polite|formal|honest)"
    rf"|(?:antworte|sprich|rede) {_HOW_DE}(?:(?:mit )?mir|auf|in)|schreibe? {_HOW_DE}mir {_HOW_DE}(?:auf|in)"
    r"|sei (?:\w+ )?(?:kurz|knapp|direkt|ehrlich|höflich)|fass dich"
    rf"|(?:réponds|répondez|parle|parlez)[- ]{_HOW_FR}(?:moi|en)|(?:écris|écrivez)-moi {_HOW_FR}en"
    r"|sois (?:\w+ )?(?:bref|direct|concis)"
    rf"|(?:resp[oó]nde|cont[eé]sta|h[aá]bla)me|escr[ií]beme {_HOW_ES}en|(?:responde|contesta|habla) {_HOW_ES}en"
    r"|sé (?:\w+ )?(?:breve|conciso|directo))\b"
)
"""What is asked for once as often as for good: it takes a language, or a word that says that it holds."""
_SPEAKERS = _words("i i'd i'm ich je yo")
_SPOKEN_TO = _words("you me mir mich du sie moi tu vous usted")
_TELLS = re.compile(r"^you (?:(?:always|never|only) )?(?:answer|reply|respond|speak|talk|write)\b|\b(?:to|with|answer) all\b")
"""What is told of the agent, or asked of it for everybody."""
_SEVERAL = r"(?!(?:one|two|three|four|five|zwei|drei|deux|trois|dos|tres|\d+) )"
_PREFERS = re.compile(
    r"\b(?:your (?:answers|replies|responses|explanations|tone|style)"
    r"|i(?:'d)? (?:prefer|like|want|would (?:like|prefer)|need|love|hate|don't (?:like|want))"
    rf" (?:{_SEVERAL}\w+ ){{0,3}}(?:answers|replies|explanations)"
    r"|(?:deinen?|ihren?) (?:antworten|erklärungen)"
    rf"|ich (?:mag|möchte|will|bevorzuge|wünsche|hasse|hätte)(?: {_SEVERAL}\w+){{0,4}} (?:antworten|erklärungen)"
    r"|(?:tes|vos) (?:réponses|explications)"
    rf"|(?:je (?:préfère|veux|voudrais|déteste)|j'aimerais)(?: {_SEVERAL}\w+){{0,4}} (?:réponses|explications)"
    r"|(?:tus|sus) (?:respuestas|explicaciones)"
    rf"|(?:prefiero|quiero|quisiera|odio|me gustan)(?: {_SEVERAL}\w+){{0,4}} (?:respuestas|explicaciones))\b"
)
"""What says how the person likes to be answered: it takes a manner, or a language."""
_ADDRESSES = re.compile(r"\b(?:(?:duze?|sieze?) mich|(?:tutoie|vouvoie)[- ]moi|(?:tut[eé]a|tr[aá]ta)me)\b")


def find_personal_sentences(prompt: str) -> list[str]:
    """The sentences of the user's own words that are about how an agent shall speak with them, at most ten."""
    lines = list(_own_lines(prompt))
    if sum(map(len, lines)) > _MAX_CHARS:
        return []
    found = [sentence for line in lines for sentence in _split(line) if _is_about_person(sentence)]
    return list(dict.fromkeys(found))[:_MAX_SENTENCES]


def says_only(text: str, sentences: Sequence[str]) -> bool:
    """Whether each sentence of a text is one of these, or a part of one."""
    said = [sentence for line in _own_lines(text) for sentence in _split(line)]
    return bool(said) and all(any(part in whole for whole in sentences) for part in said)


def _is_about_person(sentence: str) -> bool:
    """Whether the sentence says how an agent shall speak with its person, for good, and nothing else."""
    if "?" in sentence or find_phrase("once", sentence):
        return False
    said = _FROM_NOW_ON.sub("always", sentence.casefold().replace("\u2019", "'"))
    tokens = set(_TOKEN.findall(said))
    if _TELLS.search(said) or not all(token in _KNOWN or _FEW.fullmatch(token) for token in tokens):
        return False
    if _ADDRESSES.search(said):
        return True
    if _PREFERS.search(said) and tokens & (_MANNERS | _LANGUAGES):
        return True
    if tokens & _SPEAKERS and not tokens & _SPOKEN_TO:
        return False
    return _SPEAKS.search(said) is not None and bool(tokens & (_LANGUAGES | _STANDING))


def _own_lines(prompt: str) -> list[str]:
    """The lines that the user said themselves, without what is announced by one of them."""
    if len(prompt) > _MAX_READ_CHARS:
        return []
    lines: list[str] = []
    for block in own_blocks(prompt):
        for line in block:
            text = _MARKS.sub("", BULLET.sub("", line)).strip()
            if announces(text):
                break
            if text:
                lines.append(text)
    return lines


def _split(line: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE_END.split(line) if sentence.strip()]
