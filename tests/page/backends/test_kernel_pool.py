"""web/backends/wasm/kernel_pool.js by itself, on kernels that do next to nothing (tiny_kernels.wat)."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import wasmtime
from playwright.async_api import Browser, Page, Route

from tests.page.plain_server import PlainServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

TINY = wasmtime.wat2wasm((Path(__file__).with_name("tiny_kernels.wat")).read_text("utf-8"))
PROGRAM = 4 << 20
ADD, TRAP, HANG, SLOWLY = range(4)

SCRIPT = """async ([options, body]) => {
  const { KernelPool } = await import('./backends/wasm/kernel_pool.js');
  const folder = new URL('./kernels/', location.href).href;
  const pool = await KernelPool.create({ folder, ...options });
  const words = (...list) => new Uint8Array(new Uint32Array(list).buffer);
  const failure = (promise) => promise.then(() => 'nothing', (error) => `${error.name}: ${error.message}`);
  const AsyncFunction = (async () => {}).constructor;
  await pool.reserve(8 << 20);
  try {
    return await new AsyncFunction('pool', 'words', 'failure', 'program', body)(pool, words, failure, 4 << 20);
  } finally {
    pool.destroy();
  }
}"""


class PoolPage:
    def __init__(self, page: Page) -> None:
        self.page = page

    async def run(self, body: str, **options: Any) -> Any:
        """The value of a JavaScript function body with `pool`, `words`, `failure` and `program` in it."""
        return await self.page.evaluate(SCRIPT, [options, body])


async def _open(browser: Browser, address: str) -> Page:
    # The page itself may not compile WebAssembly, its workers may.
    page = await browser.new_page(bypass_csp=True)

    async def fulfill(route: Route) -> None:
        await route.fulfill(body=TINY, content_type="application/wasm")

    await page.route("**/kernels/*.wasm", fulfill)
    await page.goto(f"{address}/THIRD_PARTY.txt")
    return page


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(browser: Browser, site: str) -> AsyncIterator[PoolPage]:
    """A page that all tests share: each `run` makes a pool of its own."""
    page = await _open(browser, site)
    yield PoolPage(page)
    await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_page(browser: Browser, site: str) -> AsyncIterator[Page]:
    """A pool that the test may change."""
    page = await _open(browser, site)
    yield page
    await page.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool_without_isolation(browser: Browser, dist: Path) -> AsyncIterator[PoolPage]:
    with PlainServer(dist) as server:
        page = await _open(browser, server.url)
        yield PoolPage(page)
        await page.close()


RUN_THREE = f"""
  pool.write(program, words({ADD}, 0));
  const returned = await pool.run(program, 3);
  return [pool.workers, pool.shared, pool.build !== 'simd', ...returned];
"""


async def test_every_worker_takes_part_in_every_step(pool: PoolPage) -> None:
    for workers in (1, 2, 3):
        sums = [workers * (workers + 1) // 2 * step for step in (1, 2, 3)]
        assert await pool.run(RUN_THREE, workers=workers) == [workers, True, True, *sums]


async def test_workers_try_again_now_and_then_to_wait_awake(pool: PoolPage) -> None:
    """A busy machine made their spins short, and they would stay short."""
    body = f"""
      pool.write(program, words({ADD}, 0));
      pool.write(1024 + 3 * 4, words(1000));
      const found = [];
      for (let run = 0; run < 16; run++) {{
        await pool.run(program, 1);
        found.push(new Uint32Array((await pool.read(1024 + 3 * 4, 4)).buffer)[0]);
        if (run === 7) pool.write(1024 + 3 * 4, words(1000));
      }}
      return found;
    """
    assert await pool.run(body, workers=2) == [*[1000] * 7, 0, *[1000] * 7, 0]


async def test_without_isolation_one_worker_has_a_memory_of_its_own(pool_without_isolation: PoolPage) -> None:
    assert await pool_without_isolation.run(RUN_THREE, workers=4) == [1, False, True, 1, 2, 3]


async def test_no_more_workers_than_cores_unless_asked_for(pool: PoolPage) -> None:
    cores = await pool.page.evaluate("navigator.hardwareConcurrency")
    assert await pool.run("return pool.workers") == min(cores, 8)
    assert await pool.run("return pool.workers", workers=0) == 1
    assert await pool.run("return pool.workers", workers=1000) == 16


async def test_writes_runs_and_reads_keep_their_order(pool: PoolPage) -> None:
    assert (
        await pool.run(
            f"""
        const answers = [];
        for (let round = 0; round < 50; round++) {{
          pool.write(program, words({ADD}, round * 1000));
          answers.push(pool.run(program, 2), pool.read(program + 4, 4));
        }}
        const wrong = [];
        for (let round = 0; round < 50; round++) {{
          const [returned, read] = [await answers[2 * round], await answers[2 * round + 1]];
          const sum = new Uint32Array(read.buffer)[0];
          if (returned[1] !== round * 1000 + 6 || sum !== returned[1]) wrong.push([round, ...returned, sum]);
        }}
        return wrong;
        """,
            workers=2,
        )
        == []
    )


UPLOAD = """
  const file = Uint8Array.from({ length: 100_000 }, (_, i) => i * 7 + (i >> 8));
  const stream = { read: async (offset, n) => file.slice(offset, offset + n) };
  const jobs = [];
  for (let row = 0; row < 90; row += 9) jobs.push(500 + row * 1000, 9000, 0, program, row, 9, 1000);
  await pool.reserve(9 << 20);
  await pool.upload(stream, new Float64Array(jobs), 8 << 20);
  const got = await pool.read(program, 90_000);
  return got.every((byte, i) => byte === file[500 + i]);
"""


async def test_pieces_of_a_file_end_where_they_belong(pool: PoolPage) -> None:
    for workers in (1, 3):
        assert await pool.run(UPLOAD, workers=workers), workers


async def test_pieces_of_a_file_without_isolation(pool_without_isolation: PoolPage) -> None:
    assert await pool_without_isolation.run(UPLOAD)


async def test_an_upload_takes_no_more_than_two_pieces_a_worker_ahead(pool: PoolPage) -> None:
    ahead = await pool.run(
        """
        let read = 0, most = 0;
        pool.hang(1); // what worker 1 was given stays there
        const stream = { read: async (offset, n) => { most = Math.max(most, ++read); return new Uint8Array(n); } };
        const jobs = Array.from({ length: 50 }, (_, i) => [i * 64, 64, 0, program, i, 1, 64]).flat();
        const failed = await failure(pool.upload(stream, new Float64Array(jobs), 6 << 20));
        return [most, failed];
        """,
        workers=2,
        patience=800,
    )
    assert ahead[0] <= 6
    assert ahead[1].startswith("WorkersRestarted")


async def test_a_stream_that_breaks_is_told_in_its_own_words(pool: PoolPage) -> None:
    assert (
        await pool.run(
            """
            const stream = { read: async () => { throw new Error('the file ends here'); } };
            return failure(pool.upload(stream, new Float64Array([0, 64, 0, program, 0, 1, 64]), 6 << 20));
            """
        )
        == "Error: the file ends here"
    )


async def test_memory_that_the_browser_refuses_is_a_sentence(pool: PoolPage, pool_without_isolation: PoolPage) -> None:
    for page in (pool, pool_without_isolation):
        failure = await page.run("return failure(pool.reserve(5e9))")
        assert failure.startswith("Error: The model and its context need 5.0 GB of memory")


RESTART = """
  pool.write(program, words(%s, 0));
  pool.write(program + 64, words(0, 40));
  await pool.read(program, 4);
  %s
  const failed = await Promise.all([failure(pool.run(program, 500)), failure(pool.read(program, 4))]);
  const returned = await pool.run(program + 64, 2);
  return [...failed, pool.workers, ...returned];
"""


@pytest.mark.parametrize(
    ("operation", "before", "patience"),
    [
        (TRAP, "", 10_000),
        pytest.param(HANG, "", 800, marks=pytest.mark.all),
        pytest.param(ADD, "pool.kill(0);", 800, marks=pytest.mark.all),
        (ADD, "pool.kill(1);", 800),
        (ADD, "pool.hang(1);", 800),
        pytest.param(SLOWLY, "setTimeout(() => pool.kill(1), 10);", 800, marks=pytest.mark.all),
    ],
    ids=["trap", "endless kernel", "first killed", "second killed", "endless script", "killed in a run"],
)
async def test_workers_that_stop_are_replaced_and_the_memory_is_kept(
    pool: PoolPage, operation: int, before: str, patience: int
) -> None:
    run, read, *after = await pool.run(RESTART % (operation, before), workers=2, patience=patience)
    assert run.startswith("WorkersRestarted: ")
    assert read.startswith("WorkersRestarted: ")
    assert after == [2, 43, 46]


@pytest.mark.parametrize(("workers", "sum_of_a_step"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.all)])
async def test_a_slow_run_is_not_taken_for_a_silent_one(pool: PoolPage, workers: int, sum_of_a_step: int) -> None:
    patience = 1500  # ms, so that a busy machine does not make a worker silent
    steps, last = await pool.run(
        f"""
        pool.write(program, words({SLOWLY}, 0));
        for (let steps = 200, all = 0; ;) {{ // until a run takes longer than the patience
          const begin = performance.now();
          const returned = await pool.run(program, steps);
          const took = performance.now() - begin;
          all += steps;
          if (took > {patience}) return [all, returned.at(-1)];
          steps = Math.ceil(steps * Math.max(1.2 * {patience} / took, 2));
        }}
        """,
        workers=workers,
        patience=patience,
    )
    assert last == steps * sum_of_a_step


async def test_workers_that_never_come_back_are_given_up_with_a_sentence(pool: PoolPage) -> None:
    failures = await pool.run(
        f"""
        pool.write(program, words({TRAP}, 0));
        const failures = [];
        for (let i = 0; i < 5; i++) failures.push(await failure(pool.run(program, 1)));
        return failures;
        """,
        workers=2,
    )
    assert [failure.split(":")[0] for failure in failures] == [*["WorkersRestarted"] * 3, *["WorkersFailed"] * 2]
    assert "load the model again" in failures[3]


async def test_a_success_between_makes_the_count_of_restarts_begin_anew(pool: PoolPage) -> None:
    failures = await pool.run(
        f"""
        pool.write(program, words({TRAP}, 0));
        pool.write(program + 64, words({ADD}, 0));
        await pool.read(program, 4);
        const failures = [];
        for (let i = 0; i < 5; i++) {{
          failures.push(await failure(pool.run(program, 1)));
          await pool.run(program + 64, 1);
        }}
        return failures.map((failure) => failure.split(':')[0]);
        """,
        workers=2,
    )
    assert failures == ["WorkersRestarted"] * 5


async def test_without_isolation_a_worker_that_stops_takes_the_model_with_it(
    pool_without_isolation: PoolPage,
) -> None:
    failures = await pool_without_isolation.run(
        f"""
        pool.write(program, words({TRAP}, 0));
        return [await failure(pool.run(program, 1)), await failure(pool.run(program, 1))];
        """
    )
    for failure in failures:
        assert failure.startswith("WorkersLost: ")
        assert "Load the model again" in failure


async def test_the_number_of_workers_changes_between_runs(pool: PoolPage) -> None:
    sums = await pool.run(
        f"""
        const answers = [];
        for (const workers of [1, 3, 2, 4, 1, 2]) {{
          for (const at of [0, 1, 2]) {{
            pool.write(program, words({ADD}, 0));
            answers.push(pool.run(program, 2));
          }}
          pool.setWorkers(workers);
        }}
        pool.write(program, words({ADD}, 0));
        answers.push(pool.run(program, 2));
        return (await Promise.all(answers)).map((returned) => returned[1]);
        """,
        workers=2,
    )
    assert sums == [*(count * (count + 1) for count in (2, 1, 3, 2, 4, 1) for _ in range(3)), 6]


async def test_the_number_of_workers_changes_while_they_hang(pool: PoolPage) -> None:
    got = await pool.run(
        f"""
        pool.write(program, words({HANG}, 0));
        pool.write(program + 64, words({ADD}, 0));
        const first = failure(pool.run(program, 1));
        const changed = pool.setWorkers(3);
        const held = failure(pool.run(program + 64, 1));
        await changed;
        return [await first, await held, pool.workers, ...await pool.run(program + 64, 1)];
        """,
        workers=2,
        patience=800,
    )
    assert got[0].startswith("WorkersRestarted")
    assert got[1].startswith("WorkersRestarted")
    assert got[2:] == [3, 6]


async def test_what_is_under_way_when_the_pool_ends_is_told(pool: PoolPage) -> None:
    failure = await pool.run(
        f"""
        pool.write(program, words({HANG}, 0));
        const running = failure(pool.run(program, 1));
        pool.destroy();
        return [await running, await failure(pool.read(0, 4)), await failure(pool.reserve(9e6))];
        """,
        workers=2,
    )
    assert all("Load it again" in sentence for sentence in failure)


async def test_a_browser_without_simd_is_told_what_to_do(fresh_page: Page) -> None:
    message = await fresh_page.evaluate(
        """async () => {
          WebAssembly.validate = () => false;
          const { KernelPool } = await import('./backends/wasm/kernel_pool.js');
          return KernelPool.create({ folder: './kernels/' }).catch((error) => error.message);
        }"""
    )
    assert "no WebAssembly SIMD" in message
    assert "Chrome" in message


def cpu_adds_four_products() -> bool:
    return "avx_vnni" in Path("/proc/cpuinfo").read_text().split()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="what other CPUs add is not written in /proc/cpuinfo")
async def test_the_build_is_the_one_for_what_the_cpu_adds_in_an_instruction(fresh_page: Page) -> None:
    asked: list[str] = []
    fresh_page.on("request", lambda request: asked.append(request.url))
    await fresh_page.evaluate(
        """async () => {
          const { KernelPool } = await import('./backends/wasm/kernel_pool.js');
          (await KernelPool.create({ folder: new URL('./kernels/', location.href).href })).destroy();
        }"""
    )
    assert any(url.endswith(f"kernels-{'dot' if cpu_adds_four_products() else 'pairs'}.wasm") for url in asked)


async def test_the_plain_build_runs_where_there_is_no_relaxed_simd(fresh_page: Page) -> None:
    asked: list[str] = []
    fresh_page.on("request", lambda request: asked.append(request.url))
    build = await fresh_page.evaluate(
        """async () => {
          const validate = WebAssembly.validate;
          WebAssembly.validate = (bytes) => !bytes.includes(0x80) && validate(bytes);
          const { KernelPool } = await import('./backends/wasm/kernel_pool.js');
          const pool = await KernelPool.create({ folder: new URL('./kernels/', location.href).href });
          pool.destroy();
          return pool.build;
        }"""
    )
    assert build == "simd"
    assert any(url.endswith("kernels-simd.wasm") for url in asked)


async def test_kernels_that_cannot_be_loaded_are_a_sentence(fresh_page: Page) -> None:
    await fresh_page.unroute("**/kernels/*.wasm")
    await fresh_page.route("**/kernels/*.wasm", lambda route: route.fulfill(status=404))
    message = await fresh_page.evaluate(
        """async () => {
          const { KernelPool } = await import('./backends/wasm/kernel_pool.js');
          const folder = new URL('./kernels/', location.href).href;
          return KernelPool.create({ folder }).catch((error) => error.message);
        }"""
    )
    assert "HTTP 404" in message
    assert "load again" in message
