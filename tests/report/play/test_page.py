"""The page of a game: what is in it, and what it does in a browser."""

import html.parser
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.browser import Browser, find_browser
from tests.report.layout import faults
from tests.report.play.reference import parts_of
from tests.report.play.worlds import EPISODES, Kind, make_game
from wm.errors import UsageProblem
from wm.models.mdnrnn.network import MdnRnn
from wm.report.play import page as play_page
from wm.report.play.starts import STARTS, choose_starts
from wm.report.play.template import SCRIPTS, is_filled

BROWSER = find_browser()
NEVER_ENDS = "chance.uniform = () => 1 - 1e-12; 0"  # an end is drawn below M's probability


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests: each opens its page anew."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with Browser(BROWSER) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a game with C."""
    folder = tmp_path_factory.mktemp("page")
    path = folder / "play.html"
    path.write_bytes(make_game(folder, Kind()).page())
    return path


def test_a_page_loads_nothing_and_a_name_cannot_end_its_scripts(tmp_path: Path) -> None:
    text = make_game(tmp_path, Kind(), env="<b>x</b></script><script>alert(1)</script>").page().decode()
    tags = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            assert not {"src", "href"} & {name for name, _ in attributes}

    Reader().feed(text)
    assert tags.count("script") == 2 + len(SCRIPTS)
    assert "<b>x</b>" not in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "")
    world, _ = parts_of(text)
    assert world["env"].startswith("<b>x")


def test_a_page_is_told_from_one_with_other_code(tmp_path: Path) -> None:
    path = tmp_path / "play.html"
    game = make_game(tmp_path, Kind(), env="<b>x</b></script>\x1b\u202e\udcff")
    path.write_bytes(real := replace(game, models='vae=&"<').page())
    assert is_filled(path)
    for old, new in (
        (b"<body>", b"<body><script>alert(1)</script>"),
        (b"<body>", b"<body onload=alert(1)>"),
        (b"default-src 'none'", b"default-src *"),
        (b'name="wm-models" content="', b'name="wm-models" content=""><script>alert(1)</script><meta content="'),
        (b'id="world">', b'id="world"></script><script>alert(1)</script><script>'),
        (b"</body>", b""),
        (b"</html>", b"</html><img src=x>"),
    ):
        assert old in real
        path.write_bytes(real.replace(old, new, 1))
        assert not is_filled(path)
    path.write_bytes(b"")
    assert not is_filled(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse one is not read
    assert not is_filled(path)


def test_starts_are_different_states_with_what_was_recorded_there(tmp_path: Path) -> None:
    game = make_game(tmp_path, Kind())
    starts = choose_starts(game.latents, game.mdnrnn, game.dataset, 8)
    assert len(starts) == min(STARTS, EPISODES)
    assert len({(start.episode, start.step) for start in starts}) == len(starts)
    for start in starts:
        row = int(game.latents.starts[start.episode]) + start.step
        assert np.array_equal(start.initial.z[0], game.latents.means[row])
        assert np.array_equal(start.latents, game.latents.means[row : row + len(start.frames)])
        assert len(start.latents) == len(start.frames) == len(start.actions) + 1 == len(start.rewards) + 1
        assert row + len(start.frames) <= game.latents.ends[start.episode]


def test_a_page_without_room_has_rounder_weights_then_fewer_frames_then_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = make_game(tmp_path, Kind())
    monkeypatch.setattr(play_page, "RECORDED", (12, 4))
    monkeypatch.setattr(play_page, "PRECISIONS", play_page.PRECISIONS[1:3])
    sizes = [len(game.page())]
    for _ in range(2 * len(play_page.PRECISIONS) - 1):
        monkeypatch.setattr(play_page, "LARGEST", sizes[-1] - 1)
        sizes.append(len(game.page()))
    assert sizes == sorted(sizes, reverse=True)
    monkeypatch.setattr(play_page, "LARGEST", sizes[-1] - 1)
    with pytest.raises(UsageProblem, match="numbers, too many for a page of"):
        game.page()


def test_a_model_of_many_numbers_is_refused_before_a_page_is_made_of_them(tmp_path: Path) -> None:
    game: Any = make_game(tmp_path, Kind())
    game.mdnrnn.model = MdnRnn(5, 4, 512, 3, 1.0)
    with pytest.raises(UsageProblem, match=r"have 1,\d+,\d+ numbers"):
        game.page()


HELD = "ready.then(player => player.hands.held.map(({button}) => player.hands.buttons[button].label))"


def test_c_drives_until_a_key_is_pressed_and_again_after(browser: Browser, page: Path) -> None:
    browser.open(page)
    driver = "ready.then(player => { player.draw(); return byId('driver').textContent; })"
    assert browser.evaluate(driver) == "C drives"
    browser.key("ArrowLeft", "keyDown")
    assert browser.evaluate(driver) == "you drive"
    assert browser.evaluate("ready.then(player => player.hands.action(0))") == 3
    browser.key("ArrowLeft", "keyUp")
    time.sleep(browser.evaluate("HANDS_OFF") / 1000)
    assert browser.evaluate(driver) == "C drives"
    browser.evaluate("byId('who').value = 'you'")
    assert browser.evaluate(driver) == "you drive"
    assert browser.messages == []


def test_a_finger_on_a_button_drives(browser: Browser, page: Path) -> None:
    browser.open(page, 400)
    place = browser.evaluate("""ready.then(() => {
      const {x, y, width, height} = byId('actions').lastChild.getBoundingClientRect();
      return {x: x + width / 2, y: y + height / 2};
    })""")
    browser.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
    assert browser.evaluate(HELD) == ["right"]
    browser.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert browser.evaluate(HELD) == []
    assert browser.messages == []


def test_a_button_is_held_until_the_last_of_its_keys_is_released(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.evaluate(HELD) == []
    for key in ("ArrowLeft", "a", "A"):
        browser.key(key, "keyDown")
    assert set(browser.evaluate(HELD)) == {"left"}
    browser.key("ArrowLeft", "keyUp")
    assert browser.evaluate(HELD) == ["left"]
    assert browser.evaluate("ready.then(player => player.hands.action(0))") == 3
    browser.key("a", "keyUp")
    assert browser.evaluate(HELD) == []
    assert browser.messages == []


def test_after_a_click_the_keys_are_the_games_again(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_reduced_motion="reduce")
    browser.evaluate("byId('latents').open = true; ready.then(player => player.showLatents())")
    for part in ("#play", "#temperature", "summary", "#sliders input"):
        place = browser.evaluate(f"""(() => {{
          const part = document.querySelector("{part}");
          part.scrollIntoView({{block: "center"}});
          const {{x, y, width, height}} = part.getBoundingClientRect();
          return {{x: x + width / 3, y: y + height / 2}};
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            browser.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        browser.key(" ", "keyDown")
        assert browser.evaluate(HELD) == ["fire"], part
        browser.key(" ", "keyUp")
    browser.evaluate("byId('start').focus(); byId('start').dispatchEvent(new Event('pointerdown'))")
    browser.evaluate("byId('start').dispatchEvent(new Event('change', {bubbles: true}))")
    browser.key("ArrowLeft", "keyDown")
    assert browser.evaluate(HELD) == ["left"]
    browser.key("ArrowLeft", "keyUp")
    assert browser.messages == []


def test_a_part_that_was_reached_by_the_keyboard_keeps_its_keys(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_reduced_motion="reduce")
    browser.evaluate("ready.then(() => byId('speed').focus())")
    browser.key("ArrowRight", "keyDown")
    browser.evaluate("byId('speed').dispatchEvent(new Event('change', {bubbles: true}))")
    assert browser.evaluate("document.activeElement.id") == "speed"
    assert browser.evaluate("ready.then(player => player.hands.held)") == []


def test_a_page_can_be_paused_stepped_restarted_and_its_latents_moved(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_reduced_motion="reduce")
    step = "Number(byId('step').textContent)"
    assert browser.evaluate(f"ready.then(player => [player.playing, {step}])") == [False, 0]
    browser.evaluate(NEVER_ENDS)
    browser.key(".", "keyDown")
    browser.evaluate("byId('once').click()")
    assert browser.evaluate(step) == 2
    before = browser.evaluate("byId('dream').toDataURL()")
    browser.evaluate("byId('latents').open = true; ready.then(player => player.showLatents())")
    browser.evaluate("""document.querySelectorAll('#sliders input').forEach(slider => {
      const {min, max, value} = slider;
      slider.value = 2 * value > Number(min) + Number(max) ? min : max;
      slider.dispatchEvent(new Event('input'));
    })""")  # all of them: V may have learned to ignore any one
    assert browser.evaluate("byId('dream').toDataURL()") != before
    browser.evaluate("byId('another').click()")
    assert browser.evaluate(f"[{step}, byId('start').value]") == [0, "1"]
    assert browser.evaluate("byId('play').textContent") == "Play"


def test_a_figure_that_is_rounded_to_zero_has_no_sign(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_reduced_motion="reduce")
    shown = browser.evaluate("""ready.then(player => [-.004, -.006, 0, 2.5].map(reward => {
      player.dream = Object.assign(new Dream(player.world, player.start), {reward, total: 10 * reward});
      player.draw();
      return [byId("reward").textContent, byId("return").textContent];
    }))""")
    assert shown == [["0.00", "0.0"], ["-0.01", "-0.1"], ["0.00", "0.0"], ["2.50", "25.0"]]


def test_the_chart_of_rewards_tells_its_range(browser: Browser, page: Path) -> None:
    """It is stretched over the height whatever the rewards are: noise must not look like a lost point."""
    browser.open(page, prefers_reduced_motion="reduce")
    told = browser.evaluate("""ready.then(player => [[-.004, .001], [-.004, 1.25]].map(rewards => {
      player.trace.points = rewards.map(reward => [reward, 0]);
      player.draw();
      return byId("span").textContent;
    }))""")
    assert told == ["from 0.00 to 0.00", "from 0.00 to 1.25"]


def test_recorded_actions_drive_the_dream_to_the_end_of_the_recording(browser: Browser, page: Path) -> None:
    browser.open(page, prefers_reduced_motion="reduce")
    browser.evaluate(NEVER_ENDS)
    ran = browser.evaluate("""ready.then(player => {
      byId('who').value = 'recording';
      player.begin(0);
      const start = player.start, taken = [];
      while (!player.rest && taken.length < 1000) {
        player.step();
        taken.push(Array.from(player.dream.actionBefore));
      }
      const recorded = taken.map((_, step) => Array.from(start.action(step)));
      return [taken.length, start.length - 1, taken, recorded, byId('over').textContent];
    })""")
    assert ran[0] == ran[1] > 0
    assert ran[2] == ran[3]
    assert ran[4].startswith(f"The recording is over after {ran[0]} steps")


def test_nothing_is_cut_or_hard_to_read_on_a_phone_and_a_laptop_light_and_dark(browser: Browser, page: Path) -> None:
    """With every part of the page open, a button held, and the dream over."""
    ready = """ready.then(player => {
      document.querySelectorAll("details").forEach(each => { each.open = true; });
      player.showLatents();
      player.hands.press(0);
      player.finish();
    })"""
    assert not list(faults(browser, page, ready))
    assert browser.messages == []
