"""Pages are one small file, escape what they are given, and work in a real browser."""

import re
import shutil

import pytest

from experiments.comparison.compare import Options, compare
from experiments.comparison.selftest import aa_runs
from experiments.comparison.simulate import Planted, World, simulate, write_run
from experiments.report.comparison_page import write_comparison
from experiments.report.run_page import write_run as write_run_page

EVIL = "x<script>alert(1)</script>&"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    runs = aa_runs(30)
    same = write_comparison(folder / "aa.html", compare(runs, options=Options(baseline="baseline")))
    evil = [Planted(), Planted(name=EVIL, divergence=0.4)]
    runs = [simulate(World(), one, seed) for one in evil for seed in range(4)]
    odd = write_comparison(folder / "odd.html", compare(runs, options=Options(baseline="baseline")))
    one = write_run_page(write_run(simulate(World(), Planted(), 0), folder))
    return [same, odd, one]


def text_before_library(page):
    return page.read_text().partition("</main>")[0]


def test_pages_are_small_and_need_no_network(pages):
    for page in pages:
        assert page.stat().st_size < 3_000_000
        assert not re.search(r'(src|href)="(?!data:)', text_before_library(page))


def test_the_verdict_comes_first(pages):
    body = text_before_library(pages[0]).partition("<body>")[2]
    words = re.sub(r"<[^>]+>", " ", body).split()
    assert "No gain" in " ".join(words[:12])


def test_what_is_given_is_escaped(pages):
    html = text_before_library(pages[1])
    assert EVIL not in html
    assert "x&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in html


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(pages, width):
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path in pages:
            page = browser.new_page(viewport={"width": width, "height": 900})
            said = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.goto(path.as_uri())
            page.wait_for_function(
                "[...document.querySelectorAll('.plot')].every(p => p.dataset.drawn)"
            )
            assert page.locator(".word").first.is_visible()
            assert page.locator(".word").first.bounding_box()["y"] < 500
            plots = page.locator(".plot svg")
            assert plots.count() == page.locator(".plot").count() > 0
            for index in range(plots.count()):
                box = plots.nth(index).bounding_box()
                assert box["width"] > 250 and box["height"] > 40
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            before = page.locator(".plot svg").first.inner_html()
            page.locator(".switch label", has_text="steps").first.click()
            page.wait_for_timeout(300)
            names = page.locator(".axis-name").first.inner_text()
            assert names == "steps" and before
            assert said == []
            page.close()
        browser.close()
