"""The package for npm: packed, installed into another project, and its page served from node_modules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from app.building.node import npm_path
from app.building.packages import NPM, make_npm_folder
from app.building.system import CHROMIUM_FLAGS
from tests.packages.programs import run
from tests.page.plain_server import PlainServer

PATIENCE = 120_000


@pytest.fixture(scope="module")
def project(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of somebody else that has installed the package."""
    made, project = tmp_path_factory.mktemp("npm"), tmp_path_factory.mktemp("project")
    make_npm_folder(dist, made / NPM)
    run([npm_path(), "pack", made / NPM, "--pack-destination", made, "--ignore-scripts"])
    (tarball,) = made.glob("*.tgz")
    (project / "package.json").write_text(json.dumps({"name": "project", "private": True}), "utf-8")
    options = ["--offline", "--no-audit", "--no-fund", "--ignore-scripts"]
    run([npm_path(), "install", tarball, *options], cwd=project)
    return project


@pytest.mark.all
async def test_the_page_of_the_installed_package_chats(project: Path, tiny_path: Path, chromium_path: Path) -> None:
    assert json.loads((project / "node_modules" / NPM / "package.json").read_text("utf-8"))["name"] == NPM
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        page = await browser.new_page()
        missing: list[str] = []
        page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
        with PlainServer(project) as server:
            server.instead[f"node_modules/{NPM}/model.gguf"] = tiny_path.read_bytes()  # noqa: ASYNC240
            await page.goto(f"{server.url}/node_modules/{NPM}/index.html")
            await expect(page.locator("#status")).to_contain_text("runs in this page", timeout=PATIENCE)
            await page.fill("#text", "Hello")
            await page.press("#text", "Enter")
            await expect(page.locator("#button")).to_have_text("Stop")
            await expect(page.locator(".assistant")).to_have_text(re.compile("."))
            await page.click("#button")
            await expect(page.locator("#button")).to_have_text("Send")
            vector = await page.evaluate(EMBEDDED)
        await browser.close()
    assert vector == 384
    assert [url for url in missing if not url.endswith("/favicon.ico")] == []


EMBEDDED = """async () => {
  const { Sonata } = await import('./sonata.js');
  const sonata = await Sonata.load({ model: new URL('model.gguf', location.href).href });
  return (await sonata.embeddings.create({ input: 'a cat' })).data[0].embedding.length;
}"""
