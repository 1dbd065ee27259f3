"""The page in a real browser: with a mouse, with only the keyboard, on a phone, and in dark mode."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ebmlife.attacks import Record
from ebmlife.report import read_contents
from ebmlife.report.trials import Trials
from ebmlife.report.uploads import Form
from ebmlife.report.writing import write
from report.conftest import STEPS
from report.test_server import serving
from report.test_trial import defense
from report.test_uploads import encoded

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here; apt-get install chromium")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens an address, and holds the test to a clean console and to no request that leaves the page's own server."""
    contexts, complaints, asked = [], [], []

    def open_(address: str, *, width: int = 1200, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append((address, request.url)))
        page.goto(address)
        page.complaints = complaints
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    for address, url in asked:
        assert url.startswith((address, "data:", "blob:"))


@pytest.fixture(scope="module")
def file(made: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    write([made], path)
    return path.as_uri()


def test_the_page_opens_from_disk_and_every_chart_is_drawn(opened: Open, file: str) -> None:
    page = opened(file)
    assert page.title() == "tiny · ebmlife"
    charts = page.locator("figure.chart").count()
    assert charts > 10
    assert page.locator("figure.chart canvas").count() == charts
    said = page.locator(".lengths").inner_text()
    for use in ("generate images", "purify images", "valid density"):
        assert use in said


def test_the_slider_shows_the_same_chains_at_another_age(opened: Open, file: str) -> None:
    page = opened(file)
    strip, slider = page.locator(".now"), page.locator("#age")
    young, steps = strip.screenshot(), json.loads(page.locator(".strip").get_attribute("data-steps"))
    assert page.locator("#age-said").inner_text() == "0 Langevin steps"
    slider.focus()
    page.keyboard.press("End")
    assert page.locator("#age-said").inner_text() == f"{STEPS} Langevin steps"
    assert slider.get_attribute("aria-valuetext") == f"{STEPS} Langevin steps"
    assert strip.get_attribute("aria-label") == f"4 chains of tiny after {STEPS} Langevin steps"
    assert strip.screenshot() != young
    page.keyboard.press("ArrowLeft")
    assert page.locator("#age-said").inner_text() == f"{steps[-2]} Langevin steps"
    page.locator(".age").first.click()
    assert slider.input_value() == "0"
    assert strip.screenshot() == young


def test_the_table_has_the_records_numbers(opened: Open, file: str, made: Path) -> None:
    page = opened(file)
    for name in ("undefended", "bpda-k2", "transfer-k1"):
        record = Record.load(made / "attacks" / "digits_classifier-linf-30-255" / name / "record")
        row = page.locator(".accuracies tr").filter(has_text=re.compile(rf"^\s*{name}"))
        cells = [text.split() for text in row.locator("td").all_inner_texts()]
        shares = record.accuracies.values()
        expected = [[f"{it.value:.3f}", f"{it.low:.3f}", "to", f"{it.high:.3f}"] for it in shares]
        assert cells[: len(expected)] == expected


def test_charts_are_read_with_the_keyboard(opened: Open, file: str, made: Path) -> None:
    page = opened(file)
    chart = page.locator("#life figure.chart")
    chart.locator(".plot").focus()
    page.keyboard.press("End")
    life = read_contents(made).life
    assert life is not None
    distance = life.cycle.metrics["distance"][-1]
    said = chart.locator(".reading").inner_text()
    assert said.startswith(f"Langevin steps {STEPS}: ")
    assert float(said.rpartition(" ")[2].replace(",", "")) == pytest.approx(distance, rel=1e-3)
    page.keyboard.press("Home")
    assert chart.locator(".reading").inner_text().startswith("Langevin steps 0: ")


def test_the_keyboard_reaches_the_report_first_and_then_all_that_moves(opened: Open, file: str) -> None:
    page = opened(file)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"age", "plot", "scroll"} <= reached


@pytest.mark.parametrize("width", [320, 390, 1920])
def test_nothing_sticks_out_sideways(opened: Open, file: str, width: int) -> None:
    page = opened(file, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#life canvas").bounding_box()["width"] <= width


LUMINANCE = """([name]) => {
  const [r, g, b] = getComputedStyle(document.body)[name].match(/[\\d.]+/g).map((v) => {
    const share = v / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_day_and_night_are_both_legible(opened: Open, file: str, scheme: str, dark: bool) -> None:
    page = opened(file, color_scheme=scheme)
    paper, ink = (page.evaluate(LUMINANCE, [name]) for name in ("backgroundColor", "color"))
    assert (paper < 0.05) == dark
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7  # WCAG's AAA


def test_paper_gets_the_charts_and_no_controls(opened: Open, file: str) -> None:
    page = opened(file, color_scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator("#age").is_visible()
    assert page.locator("#life canvas").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_several_runs_share_one_slider(opened: Open, made: Path, tmp_path: Path) -> None:
    other = shutil.copytree(made, tmp_path / "other")
    write([made, other], tmp_path / "both.html")
    page = opened((tmp_path / "both.html").as_uri())
    assert page.locator("#life .legend li").all_inner_texts() == ["tiny", "other"]
    strips = page.locator(".now")
    before = [strips.nth(i).screenshot() for i in range(2)]
    page.locator("#age").focus()
    page.keyboard.press("End")
    assert all(strips.nth(i).screenshot() != before[i] for i in range(2))
    first, second = (page.locator("#about .column").nth(i).bounding_box() for i in range(2))
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]


DROP = """([bytes, type]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(bytes)], "mine", { type }));
  return data;
}"""


def drop(page: Any, body: bytes, kind: str = "image/png") -> None:
    data = page.evaluate_handle(DROP, [list(body), kind])
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})


@pytest.fixture
def live(run: Path) -> Iterator[str]:
    trials = Trials(defense(shape=(1, 8, 8)), Form("Brightness", (1, 8, 8), langevin=20))
    with serving(run, trials=trials) as server:
        yield server.address


def test_an_image_that_is_dropped_ends_purified(opened: Open, live: str) -> None:
    page = opened(live)
    assert page.locator("#trial-form button[type=submit]").is_disabled()
    drop(page, encoded(Image.new("L", (20, 16), color=130)))  # just above the middle grey: bright
    page.locator("#steps").fill("3")
    page.get_by_role("button", name="Attack and purify").click()
    said = "the classifier alone is fooled: it sees dark, not bright; the defense sees bright."
    api.expect(page.locator("#trial-state")).to_have_text(f"Finished. After the attack {said}", timeout=60_000)
    assert page.evaluate("document.querySelector('#stage-purified img').naturalWidth") == 8
    assert "bright" in page.locator("#stage-purified figcaption").inner_text()
    assert "(wrong)" in page.locator("#stage-attacked figcaption").inner_text()
    assert page.locator("#frames figcaption").last.inner_text() == "20"
    assert page.locator("#done").evaluate("it => it.value") == 1


def test_uploads_that_are_no_good_get_a_clear_message(opened: Open, live: str, tmp_path: Path) -> None:
    page = opened(live)
    state = page.locator("#trial-state")
    drop(page, b"words", "text/plain")
    assert state.inner_text() == "This file is not a readable image; use PNG, JPEG, WEBP, BMP."
    large = tmp_path / "large.png"
    large.write_bytes(bytes(9 * 2**20))
    page.locator("#file").set_input_files(large)
    assert state.inner_text() == "This file is larger than 8 MB; use a smaller one."
    drop(page, b"broken")
    page.get_by_role("button", name="Attack and purify").click()
    api.expect(state).to_have_text("this file cannot be read as a PNG image; it may be damaged", timeout=60_000)
    assert "warning" in state.get_attribute("class")
    assert page.get_by_role("button", name="Attack and purify").is_enabled()
    (refused,) = page.complaints  # the browser's own line about the server's answer
    assert "400" in refused
    page.complaints.clear()


def test_a_live_page_follows_the_run_and_says_when_it_cannot(opened: Open, run: Path) -> None:
    with serving(run) as server:
        page = opened(server.address)
        assert page.locator("#pulse").inner_text() == "live"
        plot = page.locator("#training .plot").first
        plot.focus()
        lines = (run / "log.jsonl").read_text().splitlines()
        grown = [json.dumps(json.loads(lines[-1]) | {"update": 13 + i}) for i in range(5)]
        (run / "log.jsonl").write_text("\n".join([*lines, *grown]) + "\n")
        api.expect(page.locator("#about .facts dd").first).to_have_text("17 of 12", timeout=60_000)
        assert plot.evaluate("it => it === document.activeElement")
        assert page.locator("#training canvas").count() == page.locator("#training figure.chart").count()
    api.expect(page.locator("#pulse")).to_contain_text("no longer served", timeout=60_000)
    assert all("net::ERR_" in line for line in page.complaints)  # the browser's own lines
    page.complaints.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_that_shuts_people_out(opened: Open, live: str, scheme: str) -> None:
    """Names, roles, order of headings, contrast: the rules of WCAG that a program can check."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened(live, color_scheme=scheme, bypass_csp=True)  # else the page would not let axe in
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
