"""Modules of the page that need no page, run by node."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.building.common import ROOT
from app.building.node import node_path
from py_core.display import is_blank, whole_end
from tests.unit.test_invisible_names import BLANK, SEEN

BY_HAND = r"lement\('(d[lt]|input|label|[ou]l|optgroup|option|select|table|t[dhr]|textarea)'|new Option\("
REACHED = r"\b(local|session)Storage\.\w|new BroadcastChannel|navigator\.locks\b"
CALL = """
import { readFileSync } from 'node:fs';
const [source, name, given] = JSON.parse(readFileSync(0, 'utf8'));
const module = await import(`data:text/javascript,${encodeURIComponent(source)}`);
console.log(JSON.stringify(given.map((values) => module[name](...values))));
"""


def called(path: str, name: str, given: Sequence[Sequence[Any]]) -> list[Any]:
    """The results of a function of a module without imports, for each list of arguments."""
    told = json.dumps([Path(ROOT / "web" / path).read_text("utf-8"), name, given])
    return told_by(CALL, told)


def told_by(script: str, given: str = "") -> Any:
    """The JSON that a script for node prints."""
    command = [node_path(), "--input-type=module", "-e", script]
    return json.loads(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)


def source_of(*paths: str) -> str:
    """Modules as one script, without their imports of each other."""
    sources = [Path(ROOT / "web" / path).read_text("utf-8") for path in paths]
    return re.sub(r"^import .*;$|^export ", "", "\n".join(sources), flags=re.MULTILINE)


def test_only_a_clearly_larger_model_is_offered_what_the_shipped_one_cannot_do() -> None:
    sizes = [None, 0, 134_515_008, 494_032_768, 1_100_048_384, 1_235_814_400, 3_085_938_688]
    unknown, nothing, shipped, half, small, *larger = called(
        "chat/cards.js", "cardsFor", [[size, "en"] for size in sizes]
    )
    assert unknown is nothing is shipped is half is small is None  # the cards of index.html
    for cards in larger:
        assert [card["name"] for card in cards] == ["summarise", "rewrite", "code", "plan"]
        # Cards that need the user's text wait for it, with the cursor behind the draft.
        assert [card.get("isDraft", False) for card in cards] == [True, True, False, False]


def test_where_the_shipped_model_does_not_know_the_language_its_cards_are_not_offered() -> None:
    small, large = called("chat/cards.js", "cardsFor", [[134_515_008, "de"], [3_085_938_688, "de"]])
    assert [card["name"] for card in small] == ["compute", "convert", "days", "teach"]
    assert [card["name"] for card in large] == ["summarise", "rewrite", "code", "plan"]


def test_a_difference_by_words_gives_both_texts_back_and_marks_as_little_as_it_can() -> None:
    texts = [
        ("", ""), ("", "One two"), ("One two", ""), ("It is called  Sandholm.", "It is called the Grey Heron."),
        ("a b c a b b a", "c b a b a c"), ("Ein Wort\nnoch eins", "Ein anderes Wort\nnoch eins"),
    ]  # fmt: skip
    for (before, after), pieces in zip(texts, called("common/word_diff.js", "wordDiff", texts), strict=True):
        for kind, text in (("gone", before), ("new", after)):
            kept = "".join(piece["text"] for piece in pieces if piece["kind"] in ("same", kind))
            assert kept.split() == text.split()
        assert all(one["kind"] != other["kind"] for one, other in pairwise(pieces))
    *_, ferry, letters, inserted = called("common/word_diff.js", "wordDiff", texts)
    assert [(piece["kind"], piece["text"].strip()) for piece in ferry] == [
        ("same", "It is called"), ("gone", "Sandholm."), ("new", "the Grey Heron."),
    ]  # fmt: skip
    assert sum(len(piece["text"].split()) for piece in letters if piece["kind"] == "same") == 4
    assert [piece["kind"] for piece in inserted] == ["same", "new", "same"]


def test_a_number_in_the_address_is_within_its_bounds_or_left_out_and_named() -> None:
    right = ["workers=4&context=4096&memory=900&max_tokens=8&patience=0.5&idle=.1", "workers=", ""]
    wrong = [
        *(f"{name}={text}" for name in ("workers", "context", "memory", "max_tokens") for text in ("2.5", "0", "1e3")),
        *("workers=17", "context=1048577", "context=-1", "context=0x10", "max_tokens=Infinity", "memory=NaN"),
        *("patience=86401", "patience=1e9", "patience=-3", "idle=0", "idle=0.0001", "workers=%D9%A3", "workers=4 "),
    ]
    found = called("shell/options.js", "readOptions", [[f"?{query}"] for query in (*right, *wrong)])
    first, *others = found
    assert (first["workers"], first["context"], first["memory"], first["maxTokens"]) == (4, 4096, 900, 8)
    assert (first["patience"], first["idle"]) == (0.5, 0.1)
    assert [len(options["refused"]) for options in found] == [0] * len(right) + [1] * len(wrong)
    names = ("workers", "context", "memory", "maxTokens", "idle")
    assert all(options[name] is None for options in others for name in names)
    assert all(options["patience"] == 60 for options in others)


def test_the_page_and_python_agree_on_what_shows_nothing() -> None:
    texts = [*BLANK, *SEEN]
    assert called("common/cut.js", "isBlank", [[text] for text in texts]) == [is_blank(text) for text in texts]
    assert called("common/cut.js", "visible", [["a\u202eb\u2069\u200fc"]]) == ["a\ufffdb\ufffd\u200fc"]


def test_the_page_and_python_cut_no_character_in_half() -> None:
    texts = ["abe\u0301\u0323", "ab\U0001f468\u200d\U0001f469\u200d\U0001f467", "ab\U0001f44d\U0001f3fd", "abก็"]
    cut = [(text, len(text[:end].encode("utf-16-le")) // 2) for text in texts for end in range(3, len(text))]
    assert called("common/cut.js", "wholeEnd", cut) == [2] * len(cut)
    assert called("common/cut.js", "wholeEnd", [["ab\U0001f44dcd", 3], ["ab", 5], ["abc", 2]]) == [2, 5, 2]
    assert [whole_end(text, end) for text in texts for end in range(3, len(text))] == [2] * len(cut)


def test_web_storage_that_the_browser_forbids_lasts_as_long_as_the_page_and_secret_drafts_do_too() -> None:
    script = source_of("common/web_storage.js") + """
      const denied = () => { throw new Error('denied'); };
      const kept = new Map([['other', '1']]);
      const usual = {
        getItem: (key) => kept.get(key) ?? null, removeItem: (key) => kept.delete(key),
        setItem: (key, value) => (value.length > 9 ? denied() : kept.set(key, value)),
      };
      const listed = new Proxy(usual, {
        ownKeys: () => [...kept.keys()], getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
      });
      Object.defineProperty(globalThis, 'localStorage', { get: denied, configurable: true });
      Object.defineProperty(globalThis, 'sessionStorage', { get: () => listed, configurable: true });
      const told = [local.isAllowed, session.isAllowed, local.setItem('sonata.a', '1'), local.getItem('sonata.a')];
      local.removeItem('sonata.a');
      told.push(local.getItem('sonata.a'), session.setItem('sonata.draft', 'short'), kept.get('sonata.draft'));
      told.push(session.setItem('sonata.draft', 'too long for it'), kept.has('sonata.draft'));
      told.push(session.getItem('sonata.draft'));
      session.setItem('sonata.draft', 'short');
      session.keep(false);
      session.setItem('sonata.choice', 'me');
      told.push([...kept.keys()], session.getItem('sonata.draft'), session.getItem('sonata.choice'));
      session.keep(true);
      told.push([...kept.keys()].sort());
      session.clear();
      told.push([...kept.keys()], session.getItem('sonata.draft'));
      usual.getItem = denied;
      told.push(session.isAllowed, session.setItem('sonata.draft', 'unread'), session.getItem('sonata.draft'));
      usual.getItem = (key) => kept.get(key) ?? null;
      session.setItem('sonata.draft', 'stays');
      usual.removeItem = denied;
      session.removeItem('sonata.draft');
      told.push(kept.get('sonata.draft'), session.getItem('sonata.draft'));
      console.log(JSON.stringify(told));
    """  # fmt: skip
    assert told_by(script) == [
        False, True, False, "1", None, True, "short", False, False, "too long for it",
        ["other"], "short", "me", ["other", "sonata.choice", "sonata.draft"], ["other"], None,
        False, False, "unread", "stays", None,
    ]  # fmt: skip


def test_every_part_of_the_page_reaches_web_storage_in_one_way() -> None:
    allowed = {"common/web_storage.js", "shell/first_paint.js"}
    reached = {
        path.relative_to(ROOT / "web").as_posix()
        for path in (ROOT / "web").rglob("*.js")
        if re.search(REACHED, path.read_text("utf-8"))
    }
    channels = {"common/browser_parts.js", "engine/model_tabs.js", "engine/worker.js"}
    assert reached - allowed - channels == set()


def test_lists_and_forms_are_templates() -> None:
    """docs/decisions/0106: the roots of parts are made by hand, and Markdown."""
    found = {
        path.relative_to(ROOT / "web").as_posix()
        for path in (ROOT / "web").rglob("*.js")
        if re.search(BY_HAND, path.read_text("utf-8"))
    }
    assert found == {"markdown/rich_blocks.js"}


def test_styles_that_are_loaded_late_lie_where_they_are_asked_for() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "web").rglob("*.js"))
    asked = {path for source in sources for path in re.findall(r"loadStyles\('([^']+)'\)", source)}
    assert asked
    assert [path for path in asked if not path.startswith("vendor/") and not (ROOT / "web" / path).is_file()] == []


def test_messages_that_are_none_of_ours_break_no_tab() -> None:
    """Data from an older version, another program of this origin or a mistake: nothing is thrown or done."""
    script = source_of("common/browser_parts.js", "memory/tab_writer.js") + """
      globalThis.self = globalThis;
    """ + source_of("engine/broker_worker.js") + """
      const done = [];
      process.on('unhandledRejection', (error) => done.push(String(error)));
      const note = (what) => done.push(what);
      const writer = new TabWriter('memory', { apply: note, heard: note });
      await new Promise((next) => setTimeout(next));
      writer.write();
      const port = { postMessage: (message) => done.push(message) };
      globalThis.onconnect({ ports: [port] });
      const strange = [null, undefined, 5, 'x', [], {}, { kind: 'change' },
        { kind: 'change', change: { puts: [1], deletes: [] } }, { kind: 'apply' },
        { kind: 'apply', request: { head: 5 } }, { kind: 'answer', id: 'x' }, { kind: 'answer', error: null }];
      for (const data of strange) await writer.receive(data);
      for (const data of [null, undefined, 0]) port.onmessage({ data, ports: [] });
      await new Promise((next) => setTimeout(next));
      writer.close();
      console.log(JSON.stringify(done));
    """  # fmt: skip
    assert told_by(script) == []


def test_a_chat_that_is_gone_when_the_page_closes_stands_apart_and_has_no_address() -> None:
    script = """
      const t = (key) => key, currentLanguage = () => 'en', chatInAddress = () => 'one', told = [];
      const showInAddress = (id) => told.push(id), describe = (error) => error, fromError = (error) => error;
      const reportError = (error) => { throw error; };
    """ + source_of("sidebar/groups.js", "chat/stored_chat.js") + """
      const now = Date.now() / 1000;
      const chats = [
        { id: 'a', kept: true, said: now }, { id: 'b', said: now }, { id: 'c', pinned: true, said: 0 },
      ];
      told.push(grouped(chats).map(({ key, chats }) => [key, ...chats.map(({ id }) => id)]));
      let state = 'ready', kept = true;
      const conversation = async () => ({ turns: [], title: '', kept });
      const engine = { memory: { info: async () => ({ state }), conversation } };
      const view = { clear() {}, placeStored() {}, async showStored() {} };
      const page = { onGone() {}, onTitle() {} };
      const stored = new StoredChat(view, { say() {} }, page), queue = { moveToEnd() {} };
      const look = async () => { await stored.look(engine, queue); told.push(stored.address); };
      await look();
      kept = false;
      await look();
      stored.open('two');
      kept = true;
      await look();
      state = 'locked'; // the chat on the page is in the memory that is used meanwhile
      await look();
      console.log(JSON.stringify(told));
    """  # fmt: skip
    assert told_by(script) == [
        [["unkept", "b", "c"], ["today", "a"]], "one", "one", None, None, "two", "two", None, None,
    ]  # fmt: skip


def test_a_browser_that_refuses_another_address_stops_nothing() -> None:
    script = (
        source_of("chat/address.js")
        + """
      globalThis.location = { href: 'http://a/', hash: '' };
      const refuse = () => { throw new Error('100 times per 30 seconds'); };
      globalThis.history = { state: null, pushState: refuse, replaceState: refuse };
      showInAddress('one', 'push');
      showPanelInAddress('learned', 'replace');
      console.log(JSON.stringify(chatInAddress()));
    """
    )
    assert told_by(script) is None


def test_a_draft_belongs_to_its_chat_also_after_a_reload() -> None:
    script = """
      const kept = new Map(), told = [], ownKeys = (run) => run;
      const session = {
        getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text),
        removeItem: (key) => kept.delete(key),
      };
      globalThis.CSS = { supports: () => true };
      let address = null;
      const chatInAddress = () => address;
    """ + source_of("chat/composer.js") + """
      const open = () => {
        const part = { addEventListener() {}, value: '' };
        return new Composer({ querySelector: () => part, addEventListener() {} }, {});
      };
      const type = (text) => { composer.text = text; composer.keep(''); };
      let composer = open();
      const turn = (from, to) => { composer.turn(from, to); address = to; told.push(composer.text); };
      type('for a');
      composer.name(null, address = 'a'); // it was stored
      type('for a');
      turn('a', 'b');
      type('for b');
      turn('b', null);
      type('for a chat that is left while its first answer grows');
      turn(7, 'a');
      composer.name(7, 'c');
      composer = open();
      told.push(composer.text);
      address = null; // it was deleted elsewhere
      type('was for a');
      composer = open();
      told.push(composer.text);
      turn(null, 'a');
      composer.text = 'for a';
      turn('a', null);
      turn(null, 'c');
      composer.text = '';
      turn('c', 'b');
      turn('b', 'c');
      told.push(Object.fromEntries(kept));
      console.log(JSON.stringify(told));
      process.exit();
    """  # fmt: skip
    growing = "for a chat that is left while its first answer grows"
    assert told_by(script) == [
        "", "", "for a", "for a", "was for a", "", "was for a", growing, "for b", "",
        {"sonata.draft": "was for a", "sonata.draft.a": "for a", "sonata.draft.b": "for b"},
    ]  # fmt: skip


def test_keys_of_an_input_method_are_nobody_elses() -> None:
    for path in sorted(Path(ROOT / "web").rglob("*.js")):
        text = path.read_text("utf-8")
        listens = re.findall(r"(?:addEventListener|\blisten)\(.*'key(?:down|up|press)'|@key(?:down|up|press)=", text)
        assert text.count("ownKeys(") >= len(listens), path.name
