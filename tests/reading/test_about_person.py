"""What is about the person, and what is the project's."""

from __future__ import annotations

from cmserver.reading.about_person import find_personal_sentences, says_only
from tests.table import try_rows


@try_rows(
    "sentence",
    [
        "Answer me in German.",
        "please answer me in english, no longer in german",
        "I prefer short answers.",
        "I'd like your answers to be brief, with examples.",
        "Never use emojis in your answers.",
        "Keep your explanations short and simple.",
        "From now on always speak to me in French.",
        "Always be brief.",
        "Your tone should be direct and honest.",
        "Antworte mir bitte immer auf Deutsch.",
        "Ab sofort antworte mir auf Englisch, nicht mehr auf Deutsch.",
        "Ich mag kurze Antworten.",
        "Halte deine Antworten kurz.",
        "Duze mich bitte.",
        "Réponds-moi toujours en français.",
        "Je préfère des réponses courtes.",
        "Tutoie-moi.",
        "Respóndeme siempre en español.",
        "Prefiero respuestas cortas.",
        "Tutéame, por favor.",
        "From now on be brief.",
        "Ab jetzt antworte auf Deutsch.",
        "À partir de maintenant réponds en français.",
        "De ahora en adelante responde en español.",
        "I want you to answer in German.",
        "You should answer me in German.",
        "Write to me in German.",
        "Schreib mir immer auf Deutsch.",
        "Sprich mit mir Französisch.",
        "Écris-moi en français.",
        "Escríbeme en español.",
    ],
)
def test_how_to_speak_with_somebody_is_theirs(sentence: str):
    assert find_personal_sentences(sentence) == [sentence]
    assert says_only(sentence, [sentence])


@try_rows(
    "prompt",
    [
        "Explain to me in English what this does",
        "I want response times below 200 ms",
        "Keep your answers short and use tabs in Go files.",
        "Antworte mir auf Deutsch und nimm Tabs in Go-Dateien.",
        "Réponds-moi en français et utilise des tabulations.",
        "Respóndeme en español y usa tabuladores.",
        "Always use tabs.",
        "Never use emojis in the UI.",
        "Are your answers always in German?",
        "Answer me in German this time.",
        "Answer in German what the error means.",
        "We want short answers in the FAQ.",
        "Write me a test in English.",
        "The API should reply to me in JSON.",
        "I like the answers.",
        "Answer me.",
        "Be brief.",
        "The answers must be short.",
        "Speak to the database in one transaction only.",
        "Answer in English now.",
        "Antworte jetzt auf Deutsch.",
        "Réponds maintenant en français.",
        "Responde ahora en español.",
        "Answer only in two sentences.",
        "Antworte nur in einem Satz.",
        "Make your answer shorter.",
        "Write your answer in German.",
        "I want two answers in English.",
        "Write me two short sentences in German.",
        "Schreibe mir drei kurze Sätze auf Deutsch.",
        "Écris-moi trois phrases en français.",
        "Escríbeme una respuesta en español.",
        "I want to answer in German.",
        "Ich antworte auf Deutsch.",
        "Je réponds en français.",
        "We always answer in English.",
        "We should answer in German.",
        "You always answer me in English.",
        "Your answers are long.",
        "Reply to messages in English.",
        "Keep your messages in English.",
        "Talk to all in English.",
        "Speak in English to all.",
        "One answer in German and one in English, please.",
        "Schreibe Nachrichten auf Deutsch.",
        "Schreib Erklärungen immer auf Englisch.",
        "Écris toujours en anglais.",
        "Responde mensajes en español.",
        "Here is the mail:\n\nAnswer me in German. And this goes on, for much longer than the line above it does.",
        "```\nAnswer me in German.\n```",
    ],
)
def test_what_is_of_the_code_or_in_doubt_is_nobodys_taste(prompt: str):
    assert find_personal_sentences(prompt) == []


def test_one_sentence_of_several_is_found():
    prompt = "Use tabs in Go files. Answer me in German. Fix the parser."

    found = find_personal_sentences(prompt)

    assert found == ["Answer me in German."]
    assert not says_only(prompt, found)
    assert not says_only("Fix the parser.", found)
    assert says_only("Answer me in German", found)
