"""The package for npm: packed, installed into another project, and its page served from node_modules."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, async_playwright, expect

from app.building.common import ROOT
from app.building.node import NODE_MODULES, node_path, npm_path
from app.building.packages import NPM, make_npm_folder
from app.building.system import CHROMIUM_FLAGS
from tests.packages.programs import code_blocks, run
from tests.page.plain_server import PlainServer

pytestmark = [pytest.mark.all, pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 120_000
PROGRAM = code_blocks((ROOT / "docs" / "guide" / "code.md").read_text("utf-8"))["In a page, without a server"]


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


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(project: Path, tiny_path: Path) -> AsyncIterator[PlainServer]:
    """The project as a server sends it, with a model beside the package and one at the top."""
    (project / NPM).symlink_to(project / "node_modules" / NPM)
    (project / "page.html").write_text(f'<!doctype html><script type="module">{PROGRAM}</script>', "utf-8")
    (project / "ai.js").write_text(_bundled(AI), "utf-8")
    model = tiny_path.read_bytes()  # noqa: ASYNC240
    with PlainServer(project) as server:
        for place in ("model.gguf", f"{NPM}/model.gguf"):
            server.instead[place] = model
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def context(chromium_path: Path) -> AsyncIterator[BrowserContext]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield await browser.new_context()
        await browser.close()


async def test_the_page_of_the_installed_package_chats(server: PlainServer, context: BrowserContext) -> None:
    page, missing = await context.new_page(), list[str]()
    page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
    await page.goto(f"{server.url}/{NPM}/index.html")
    await expect(page.locator("#status")).to_contain_text("runs in this page", timeout=PATIENCE)
    await page.fill("#text", "Hello")
    await page.press("#text", "Enter")
    await expect(page.locator("#button")).to_have_text("Stop")
    await expect(page.locator(".assistant")).to_have_text(re.compile("."))
    await page.click("#button")
    await expect(page.locator("#button")).to_have_text("Send")
    assert await page.evaluate(EMBEDDED) == 384
    assert [url for url in missing if not url.endswith("/favicon.ico")] == []
    await page.close()


async def test_the_program_for_a_page_answers_and_so_does_the_ai_sdk_there(
    server: PlainServer, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(f"{server.url}/page.html")
    await expect(page.locator("body")).to_have_text(re.compile(".{5}"), timeout=PATIENCE)
    text, calls = await page.evaluate(WITH_AI)
    assert len(text) > 5
    assert calls == [["weather", {"city": "Bern"}]]
    await page.close()


def _bundled(source: str) -> str:
    esbuild = [node_path(), NODE_MODULES / "esbuild/bin/esbuild", "--bundle", "--format=esm", "--log-level=error"]
    return run([*esbuild, "--platform=browser"], source, cwd=ROOT)


AI = "export { createOpenAICompatible } from '@ai-sdk/openai-compatible'; export * from 'ai';"
EMBEDDED = """async () => {
  const { Sonata } = await import('./sonata.js');
  const sonata = await Sonata.load({ model: new URL('model.gguf', location.href).href });
  return (await sonata.embeddings.create({ input: 'a cat' })).data[0].embedding.length;
}"""
WITH_AI = """async () => {
  const { createOpenAICompatible, generateText, jsonSchema, streamText, tool } = await import('/ai.js');
  const { Sonata } = await import('/sonata-llm/sonata.js');
  const sonata = await Sonata.load({ model: '/model.gguf' });
  const model = createOpenAICompatible({ name: 'sonata', baseURL: 'http://sonata/v1', fetch: sonata.fetch })('');
  let text = '';
  for await (const part of streamText({ model, prompt: 'Hello', maxOutputTokens: 16 }).textStream) text += part;
  const properties = { city: { enum: ['Bern'] } };
  const inputSchema = jsonSchema({ type: 'object', properties, required: ['city'], additionalProperties: false });
  const tools = { weather: tool({ inputSchema }) };
  const asked = { model, prompt: 'Hello', maxOutputTokens: 200, toolChoice: 'required', tools };
  const { toolCalls } = await generateText(asked);
  return [text, toolCalls.slice(0, 1).map(({ toolName, input }) => [toolName, input])];
}"""
