"""A file becomes text in any encoding, or a sentence says why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.files.text import LONGEST_NAME, MOST_CHARACTERS, PDF, FileError, shown_name, text_of

SAID = "Grüße aus Köln: 20 € für „zwei“ Bücher.\nNoch eine Zeile.\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_usual_encodings_are_recognised(encoding: str) -> None:
    assert text_of("gruss.txt", SAID.encode(encoding)) == SAID


@pytest.mark.parametrize(
    ("encodings", "said"),
    [
        ("cp1252 cp850 mac-roman", "Grüße aus Köln: zwölf Bücher, sagte Jürgen. Die Straße ist schön, überall Äpfel."),
        ("cp1252 mac-roman", "L’élève a répondu : « où est le cœur de la façade ? » – très belle, ça suffit."),
        ("cp1252", "¿Dónde está el niño? Müller, José, Åsa und François: 20 €, 5 °C, 3 × 4 m²."),
        ("cp1252", "Price: 20 £"),
        ("cp1250 iso8859-2 cp852", "Proszę otworzyć okno, ponieważ jest gorąco. Łódź płynie, żółta gęś."),
        ("cp1250 iso8859-2 cp852", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp1250", "Żółta łódź płynie; příliš žluťoučký kůň."),
        ("cp1251 koi8-r cp866 iso8859-5", "Включите питание и нажмите красную кнопку на три секунды."),
        ("cp1251 cp866 mac-cyrillic", "Дата;Сумма\n01.02.2024;1500,00\nМосква;оплачено"),
        ("utf-16-le utf-16-be utf-32-le utf-32-be", "Имя;Город\nИван;Москва, «центр»\n"),
        ("cp1251 iso8859-5", "Почитувани колеги, состанокот ќе се одржи во понеделник наутро. Ѓорѓи доаѓа."),
        ("cp1251 koi8-r cp866 iso8859-5", "ВКЛЮЧИТЕ ПИТАНИЕ И НАЖМИТЕ КРАСНУЮ КНОПКУ"),
        ("cp1251 koi8-u", "Увімкніть живлення та натисніть червону кнопку, їжаче."),
        ("cp1253 cp737 mac-greek", "Παρακαλώ ανοίξτε το παράθυρο γιατί κάνει ζέστη."),
        ("cp1254 cp857 mac-turkish", "Lütfen pencereyi açınız çünkü hava çok sıcak; güneş doğdu, şimdi gidiyoruz."),
        ("cp1255 cp862", "נא לפתוח את החלון כי חם מאוד"),
        ("cp1256 iso8859-6", "الرجاء فتح النافذة لأن الجو حار جدا"),
        ("cp1257", "Prašau atidaryti langą, nes karšta. Ačiū už pagalbą šį mėnesį."),
        ("cp874", "กรุณาเปิดหน้าต่างเพราะอากาศร้อน"),
        ("cp932 euc_jp iso2022_jp", "電源を入れてから赤いボタンを三秒押してください。"),
        ("cp932", "会社名,所在地\n株式会社東芝,東京都港区"),
        ("gb18030", "你好"),
        ("gb18030", "请先打开电源，然后按住红色按钮三秒。"),
        ("cp950", "請先打開電源，然後按住紅色按鈕三秒。"),
        ("cp949", "전원을 켜고 빨간 버튼을 3초 동안 누르십시오."),
    ],
)
def test_encodings_from_before_unicode_are_told_by_their_letters(encodings: str, said: str) -> None:
    for encoding in encodings.split():
        assert text_of("old.txt", f"{said}\n".encode(encoding)) == f"{said}\n", encoding


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (f"{SAID}{SAID}".encode() + b"Fax \xff 030\n", f"{SAID}{SAID}Fax \ufffd 030\n"),
        ("Name;Ort\nJürgen;Köln\n".encode() + b"\xc5sa;Malm\xf6\n", "Name;Ort\nJürgen;Köln\nÅsa;Malmö\n"),
        ("für 20 €".encode()[:-1], "für 20 \ufffd"),
        (b"\x9f" + "ße, süß, größer".encode(), "\ufffdße, süß, größer"),
        ("groß".encode() + b"\xe2\x82 und " + "weiß".encode(), "groß\ufffd und weiß"),
        (b"\xef\xbb\xbf" + "Straße".encode() + b" \xfcber", "Straße über"),
        (
            b"A log of one byte \xff among many others that are ASCII, as most logs are.",
            "A log of one byte \ufffd among",
        ),
    ],
)
def test_what_is_utf8_but_for_a_few_bytes_is_utf8(data: bytes, said: str) -> None:
    assert text_of("notes.txt", data).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x1b[32mOK\x1b[0m test\n\x1b]0;title\x07\x1b(B\x1b[1;31mred\x1b[m\n", "OK test\nred\n"),
        (b"\x1bPq#0;2;0~-\x1b\\after \x1b_Gf=24;AAAA\x1b\\it", "after it"),
        (b"10%\b\b\b20%\nN\bNA\bA\n", "20%\nNA\n"),
        (b"One\x0bline of a form\x1cand one\x1a", "One line of a form and one "),
    ],
)
def test_what_is_meant_for_a_terminal_is_left_out(data: bytes, said: str) -> None:
    assert text_of("build.log", data) == said


def test_line_breaks_become_those_of_unix() -> None:
    assert text_of("a.txt", b"one\r\ntwo\rthree\n") == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("none.txt", b"", "none.txt is empty."),
        ("blank.txt", b" \n\t\n", "blank.txt is empty."),
        ("unseen.txt", "\u200b\u00ad\n\u3164\u202e".encode(), "unseen.txt is empty."),
        ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "photo.png is not text. Sonata cannot read pictures."),
        ("report.docx", b"PK\x03\x04" + b"x" * 50, "save it as text, CSV or PDF"),
        ("tool.bin", bytes(range(256)) * 10, "tool.bin is not text. Sonata reads text, Markdown, code, CSV and PDF."),
        ("noise", b"text\x01\x02\x03\x04" * 50, "noise is not text."),
        (
            "old.txt",
            b"\x9f\xfe\xd7 \x81\xb5\xf7" * 9,
            "old.txt is in an encoding that Sonata does not recognise. Save it",
        ),
        ("half.txt", b"\xff\xfe\x00\xd8", "half.txt is not text."),
        ("line.txt", b"a" * 50_000_000, "it has 50.0 MB, and a file may have 4 MB"),
        ("long.txt", b"a" * (MOST_CHARACTERS + 1), "it has 1,000,001 characters, and a file may have 1,000,000"),
        ("../secret/\x1b[2J.txt", b"", "[2J.txt is empty."),
    ],
)
def test_what_is_no_text_says_what_to_do(name: str, data: bytes, said: str) -> None:
    with pytest.raises(FileError) as failure:
        text_of(name, data)
    assert said in str(failure.value)
    assert "\x1b" not in str(failure.value)


def test_a_scanned_pdf_says_that_its_pages_are_pictures() -> None:
    with pytest.raises(FileError, match=r"scan\.pdf has no text: its pages are pictures"):
        text_of("scan.pdf", b"\f\f", PDF)


def test_a_pdf_whose_fonts_do_not_tell_their_letters_says_so() -> None:
    with pytest.raises(FileError, match=r"odd\.pdf has no text: its fonts do not say"):
        text_of("odd.pdf", b"\1\2\3\4\f\5\6", PDF)


@given(st.binary(max_size=400))
def test_any_bytes_are_text_or_a_sentence(data: bytes) -> None:
    try:
        said = text_of("any", data)
        said.encode()  # not half of a surrogate pair
    except FileError as error:
        said = str(error)
    assert said
    assert "\0" not in said


@given(st.text())
def test_a_shown_name_is_one_printable_line(name: str) -> None:
    shown = shown_name(name)
    assert shown
    assert shown.isprintable()
    assert len(shown) <= LONGEST_NAME
