"""A question about a table in the page without its server: the model's code, the numbers, the chart, the seconds.

    python -m tests.bench analyst_page [--model 0.5b] [--question TEXT] [--pictures FOLDER] [--json FILE]

`python build.py models 0.5b` fetches the model first. The model's file is opened in the page, and some code loads
pandas and matplotlib, which the user agrees to once. Then the server ends, the browser is offline, and the page is
loaded again; tests/bench/data/analyst/sales.csv is dropped, and the question is typed into its look.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.table import Table

from app.building.larger_models import larger_model_names
from app.models.cache import ModelCache
from tests.bench.in_browser import local_server, processor
from tests.bench.page.kept_model import bring, open_page, visited
from tests.bench.reporting import options_of, print_tables, write_figures

LIMIT_MS = 300_000
FILE = Path(__file__).parents[1] / "data" / "analyst" / "sales.csv"
QUESTION = "What is the average number of units by region? Draw a bar chart."
RIGHT = ("east 13.625", "north 17.9", "south 16.5455", "west 19.6429")
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, { type: 'text/csv' }));
  for (const type of ['dragover', 'drop']) {
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""
LOAD = """() => {
  const turn = sonata.chat.addTurn('And?');
  turn.append('```python\\nimport pandas, matplotlib.pyplot\\n```');
  turn.finish({ reason: 'end' });
  turn.answerElement.querySelector('.code-run').click();
}"""
ENDED = ".code-run[data-running=false]"
ROWS = "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(' '))"


def ask(page: Page, question: str) -> dict[str, Any]:
    """Drop the table, and ask. Returns what came, and when."""
    page.evaluate(DROP, [FILE.name, FILE.read_text("utf-8")])
    page.wait_for_selector(".table-look tbody tr", timeout=LIMIT_MS)
    page.fill(".look-analysis input", question)
    begun = time.monotonic()
    page.click(".look-analysis button")
    page.wait_for_selector(".python-run", timeout=LIMIT_MS)
    coded = time.monotonic()
    page.wait_for_selector(ENDED, timeout=LIMIT_MS)
    ended = time.monotonic()
    return {
        "question": question, "code": page.inner_text(".answer .code-block pre"),
        "rows": page.eval_on_selector_all(".python-run tbody tr", ROWS),
        "errors": page.locator(".python-error").all_inner_texts(),
        "charts": page.locator(".python-picture img").count(),
        "code_s": coded - begun, "run_s": ended - coded,
    }  # fmt: skip


def measure(model: str, question: str, pictures: Path | None) -> dict[str, Any]:
    path = ModelCache().path_of(f"qwen2.5-coder-{model}" if model in larger_model_names() else model)
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = open_page(playwright, profile)
        page = context.new_page()
        with local_server() as address:
            visited(page, f"{address}/?backend=wasm")
            bring(page, path)
            page.evaluate(LOAD)
            page.click(".python-question .primary", timeout=LIMIT_MS)
            page.wait_for_selector(ENDED, timeout=LIMIT_MS)
            page.wait_for_function("() => !document.querySelector('#works-offline').hidden", timeout=LIMIT_MS)
        context.set_offline(True)
        visited(page, page.url)
        found = {"model": model, "cpu": processor(), **ask(page, question)}
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=pictures / "analyst.png")
        context.close()
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--model", default="0.5b")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write a picture of the page here")
    options = parser.parse_args()
    found = measure(options.model, options.question, options.pictures)
    table = Table(title=f"{found['model']} in the page, offline; {found['cpu']}", show_header=False)
    table.add_row("question", found["question"])
    table.add_row("code", found["code"])
    table.add_row("table", "\n".join(found["rows"]))
    if options.question == QUESTION:
        table.add_row("right", str(tuple(found["rows"]) == RIGHT))
    table.add_row("charts; errors", f"{found['charts']}; {len(found['errors'])}")
    table.add_row("s from the question to its code", f"{found['code_s']:.1f}")
    table.add_row("s from the code to the chart", f"{found['run_s']:.1f}")
    print_tables(table)
    write_figures(options, found)
