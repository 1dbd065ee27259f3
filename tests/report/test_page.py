import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_cli import Capture, fails, works

from ebmlife.attacks import Record
from ebmlife.report import read_contents, render
from ebmlife.report.server import PageServer
from ebmlife.report.summary import Fact
from ebmlife.report.uploads import Form
from report.conftest import CLASSIFIER, STEPS

SECTIONS = ["about", "life", "samples", "defense", "density", "training", "recipe"]


class Tags(HTMLParser):
    """Every tag with its attributes, and whether they close as they open."""

    EMPTY = ("meta", "link", "img", "input", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(made: Path) -> str:
    return render([read_contents(made)]).html


def test_the_page_has_all_its_sections_in_order(made: Path) -> None:
    page = render([read_contents(made)])
    assert [section.name for section in page.sections] == SECTIONS
    assert page.title == "tiny"


def test_tags_close_and_names_are_used_once(html: str) -> None:
    found = Tags(html)
    assert found.open == []
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in found.tags:
        assert tag != "img" or "alt" in attributes
        for reference in ("aria-labelledby", "for"):
            assert attributes.get(reference, ids[0]) in ids


def test_the_file_needs_no_other(html: str) -> None:
    for _, attributes in Tags(html).tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            assert value.startswith(("data:", "#")) or not value
    assert "@import" not in html
    assert not re.search(r"url\((?!data:|['\"]?data:)", html)


def test_only_its_own_script_may_run(html: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in html
    assert "connect-src &#39;none&#39;" in html


def test_the_table_has_the_records_numbers(html: str, made: Path) -> None:
    record = Record.load(made / "attacks" / "digits_classifier-linf-30-255" / "bpda-k2" / "record")
    (row,) = re.findall(r'<th scope="row">bpda-k2<.*?</tr>', html)
    numbers = re.findall(r"<td>([\d.]+)<small>([\d.]+) to ([\d.]+)</small>", row)
    shares = record.accuracies.values()
    assert numbers == [(f"{it.value:.3f}", f"{it.low:.3f}", f"{it.high:.3f}") for it in shares]


def test_the_slider_has_a_place_for_every_age(html: str, made: Path) -> None:
    life = read_contents(made).life
    assert life is not None
    assert f'max="{len(life.cycle.steps) - 1}"' in html
    assert f'data-steps="{escape(json.dumps(life.cycle.steps))}"' in html
    assert life.cycle.steps[-1] == STEPS


def test_names_are_text_whatever_is_in_them(made: Path) -> None:
    evil = '<script>alert(1)</script>"&'
    found = replace(
        read_contents(made), name=evil, headline=evil, facts=[Fact(evil, evil, evil)], fields=[(evil, evil)]
    )
    html = render([found]).html
    assert evil not in html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert Tags(html).open == []


def test_a_page_says_what_the_three_lengths_are_for(html: str) -> None:
    text = re.sub(r"<[^>]+>", "", html)
    assert "generate images" in text
    assert "purify images" in text
    assert "valid density" in text


def test_a_model_that_has_not_walked_says_how_it_can(made: Path) -> None:
    page = render([replace(read_contents(made), life=None, strip=None)])
    (life,) = [section for section in page.sections if section.name == "life"]
    assert f"ebmlife report {made}" in life.html


def test_several_runs_are_side_by_side_in_one_figure(made: Path) -> None:
    found = read_contents(made)
    page = render([found, replace(found, name="other"), replace(found, name="unwalked", life=None, strip=None)])
    html = page.html
    assert page.title == "tiny and other and unwalked"
    assert html.count('class="strip"') == 2
    assert html.count('id="age"') == 1
    assert Tags(html).open == []


def test_the_form_is_there_only_where_images_can_be_tried(made: Path) -> None:
    form = Form("net", (1, 8, 8), langevin=7, radius=9, examples=["data:image/png;base64,AAAA"])
    page = render([read_contents(made)], live=True, form=form)
    assert [section.name for section in page.sections].index("trial") == SECTIONS.index("defense") + 1
    html = page.html
    assert 'value="7"' in html
    assert "9/255" in html
    assert "connect-src &#39;self&#39;" in html
    assert "trial" not in [section.name for section in render([read_contents(made)]).sections]


def test_pages_differ_by_their_digest_only_where_they_differ(made: Path) -> None:
    found = read_contents(made)
    one, same, other = render([found]), render([found]), render([replace(found, name="other")])
    assert one.digest == same.digest
    changed = [a.name for a, b in zip(one.sections, other.sections, strict=True) if a.digest != b.digest]
    assert changed == ["about", "life"]


def test_report_writes_one_file_and_says_where(run: Path, tmp_path: Path, capsys: Capture) -> None:
    works("report", run, "--no-walk")
    assert capsys.readouterr().out == f"report: {run / 'report.html'}\n"
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    other = tmp_path / "elsewhere" / "tiny"
    other.parent.mkdir()
    run.rename(other)
    made = shutil.copytree(other, tmp_path / "tiny")
    works("report", other, made, "--out", tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert f"<h1>{other}, {made}</h1>" in page  # equal names are distinguished by their paths


def test_mistakes_are_said_before_a_walk(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "needs --out" in fails(capsys, "report", run, run)
    assert "ends in .html" in fails(capsys, "report", run, "--out", tmp_path / "page.pdf")
    assert "no recipe.json" in fails(capsys, "report", run, tmp_path, "--out", tmp_path / "a.html")
    assert "is given twice" in fails(capsys, "report", run, run, "--no-walk", "--out", tmp_path / "a.html")
    assert "no recipe.json" in fails(capsys, "watch", tmp_path)
    assert not (tmp_path / "a.html").exists()


def test_watch_offers_the_classifier_and_the_radius_of_the_runs_attack(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    served: list[str] = []

    def once(self: PageServer) -> None:
        served.append(self.page().html)
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", once)
    works("watch", run, "--port", "0", "--classifier", CLASSIFIER)
    assert "http://127.0.0.1:" in capsys.readouterr().out
    assert "30/255" in served[0]
    assert served[0].count('aria-label="Image ') == 8
    works("watch", run, "--port", "0")
    assert "--classifier NAME" in capsys.readouterr().out
    assert "trial-form" not in re.sub(r"<script>.*?</script>", "", served[1], flags=re.DOTALL)
