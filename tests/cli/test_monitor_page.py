"""The monitor's page in a real Chromium: what it shows, keys, themes, a phone, two hundred channels, and a server that ends."""

import re

import browser as chromium
import pytest

import penstock
from penstock.cli.monitor import snapshots
from penstock.cli.terminal import fitting

pytest.importorskip("starlette", reason="the page needs penstock[web]")
pytest.importorskip("uvicorn", reason="the page needs penstock[web]")

from penstock.cli.monitor.serving import Server

WIDE, PHONE = {"width": 1440, "height": 1000}, {"width": 420, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with chromium.opened() as made:
        yield made


@pytest.fixture
def made():
    """Snapshots that the test makes one by one, so that it knows what each one saw."""
    found = snapshots.Snapshots(every=3600)
    with Server(found) as server:
        found.url = server.url
        found.server = server
        yield found


@pytest.fixture
def page(browser, made):
    """A function that opens the page. A complaint of the page, such as a refused load, fails the test."""
    wrong, contexts = [], []

    def opened(viewport=WIDE, **options):
        contexts.append(browser.new_context(viewport=viewport, **options))
        new = contexts[-1].new_page()
        new.set_default_timeout(60_000)
        new.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        new.on("pageerror", lambda error: wrong.append(str(error)))
        new.on("request", lambda asked: None if asked.url.startswith(made.url) else wrong.append(asked.url))
        new.goto(made.url)
        new.wait_for_selector("body[data-look]")
        return new

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def look(made, page):
    """One more look, and the page has drawn it."""
    made.take()
    page.wait_for_selector(f'body[data-look="{made.number}"]')


def row(page, channel):
    return page.locator(f'.rows .row[data-channel="{channel}"]')


def names(page):
    return page.eval_on_selector_all(".rows .row", "rows => rows.map(row => row.dataset.channel)")


def test_channels_members_and_rates_are_shown_as_they_change(made, page):
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub:
        shown = page()
        look(made, shown)
        assert names(shown) == ["log:a"]
        assert shown.locator(".node.channel b").all_text_contents() == ["log:a"]
        assert shown.locator(".node.program").count() == 1, "one program, which writes and reads"
        for _ in range(20):
            pub.send(b"x" * 100)
        look(made, shown)
        assert float(row(shown, "log:a").locator("div").nth(2).text_content().replace(",", "")) > 0
        assert row(shown, "log:a").locator("div").nth(4).text_content() == f"{sub.lag / 1000:.1f} kB"
        row(shown, "log:a").click()
        assert shown.locator("#detail h2").text_content() == "log:a"
        assert shown.locator("#detail .member").count() == 2
        with penstock.publish("ring:b"):
            look(made, shown)
            assert names(shown) == ["log:a", "ring:b"]
            assert shown.locator(".node.channel").count() == 2
        look(made, shown)
        assert shown.locator(".node.channel").count() == 1, "no process has ring:b open any more"
    penstock.remove("ring:b")
    look(made, shown)
    assert names(shown) == ["log:a"]


def test_losses_are_seen(made, page):
    shown = page()
    with penstock.publish("ring:r", capacity=1 << 16) as pub, penstock.subscribe("ring:r") as sub:
        look(made, shown)
        for _ in range(5000):
            pub.send(b"x" * 100)
        sub.try_recv()
        look(made, shown)
        look(made, shown)
        assert "loses" in row(shown, "ring:r").get_attribute("class")
        assert shown.locator("#s-lost-of").text_content() == "ring:r"


def test_text_of_others_is_text(made, page):
    with penstock.join("sync:s", name="<img src=x onerror=alert(1)>"):
        shown = page()
        look(made, shown)
        shown.keyboard.press("j")
        assert "<img src=x" in shown.locator("#detail .member b").first.text_content()
        assert shown.locator("#detail img").count() == 0


def test_keys(made, page):
    with penstock.publish("log:a"), penstock.publish("log:b"), penstock.publish("ring:c"):
        shown = page()
        look(made, shown)
        title = shown.locator("#detail h2")
        for key, then in (("j", "log:a"), ("ArrowDown", "log:b"), ("k", "log:a"), ("Escape", "All channels")):
            shown.keyboard.press(key)
            assert title.text_content() == then
        shown.keyboard.press("/")
        shown.keyboard.type("ring")
        assert names(shown) == ["ring:c"]
        assert shown.locator(".node.channel b").all_text_contents() == ["ring:c"]
        shown.keyboard.press("Enter")
        assert title.text_content() == "ring:c"
        shown.keyboard.press("Escape")
        shown.keyboard.press("Escape")
        assert names(shown) == ["log:a", "log:b", "ring:c"]
        shown.keyboard.press("r")
        assert names(shown) == ["ring:c", "log:b", "log:a"]
        shown.keyboard.press("3")
        assert shown.locator("#recordings").is_visible()
        assert not shown.locator("#channels").is_visible()
        shown.keyboard.press(" ")
        assert shown.locator("#status").text_content().strip() == "paused"
        before = shown.get_attribute("body", "data-look")
        made.take()
        assert shown.get_attribute("body", "data-look") == before
        shown.keyboard.press(" ")
        shown.wait_for_selector(f'body[data-look="{made.number}"]')
        shown.keyboard.press("?")
        shown.locator("#keys").wait_for(state="visible")
        shown.keyboard.press("Escape")
        shown.locator("#keys").wait_for(state="hidden")  # the browser itself closes it


def test_arrows_walk_through_the_graph(made, page):
    with penstock.publish("log:a"), penstock.subscribe("log:b"):
        shown = page()
        look(made, shown)
        shown.locator('.node[tabindex="0"]').focus()
        seen = set()
        for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"):
            seen.add(shown.evaluate("document.activeElement.dataset.id"))
            shown.keyboard.press(key)
        assert {"clog:a"} < seen or {"clog:b"} < seen
        assert shown.locator('.node[tabindex="0"]').count() == 1


def lightness(page):
    numbers = re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    return sum(map(float, numbers[:3])) / 3


def test_dark_and_light(page):
    dark, light = page(color_scheme="dark"), page(color_scheme="light")
    assert lightness(dark) < 50
    assert lightness(light) > 200
    light.keyboard.press("t")
    assert lightness(light) < 50
    light.reload()
    light.wait_for_selector("body[data-look]")
    assert lightness(light) < 50, "the choice is kept"
    dark.locator("#theme").click()
    assert lightness(dark) > 200


def test_nothing_is_wider_than_the_screen(made, page):
    with (
        penstock.publish("log:" + "a-long-name/" * 8 + "end"),
        penstock.publish("ring:b"),
        penstock.subscribe("ring:b"),
    ):
        shown = page()
        for width in (320, 420, 820, 1440):
            shown.set_viewport_size({"width": width, "height": 800})
            shown.reload()
            shown.wait_for_selector("body[data-look]")
            look(made, shown)
            for key in "1234":
                shown.keyboard.press(key)
                assert shown.evaluate("document.documentElement.scrollWidth") <= width, key
                shown.keyboard.press("j")
                assert shown.evaluate("document.documentElement.scrollWidth") <= width, key
                for edge in ("left", "right"):
                    ends = shown.eval_on_selector_all(
                        ".node, .row, .stat, .tabs button, #detail",
                        f"all => all.filter(one => one.offsetWidth).map(one => one.getBoundingClientRect().{edge})",
                    )
                    assert all(-1 <= end <= width + 1 for end in ends), (key, edge, ends)
                shown.keyboard.press("Escape")


def test_a_phone_shows_one_part_at_a_time_and_details_above_it(made, page):
    with penstock.publish("log:a"):
        shown = page(PHONE)
        look(made, shown)
        assert shown.locator("#flow").is_visible()
        assert not shown.locator("#channels").is_visible()
        shown.locator("#tab-channels").click()
        assert not shown.locator("#flow").is_visible()
        row(shown, "log:a").click()
        assert shown.locator("#detail").is_visible()
        shown.locator("#detail .close").click()
        assert not shown.locator("#detail").is_visible()


def test_a_phone_has_room_for_the_whole_list_of_recordings(browser, tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:robot/lidar_front") as pub, archive.record("log:robot/lidar_front"):
        pub.send(b"x")
    found = snapshots.Snapshots([archive.path], every=3600)
    context = browser.new_context(viewport=PHONE)
    shown = context.new_page()
    shown.set_default_timeout(60_000)
    with Server(found) as server:
        shown.goto(server.url)
        shown.wait_for_selector("body[data-look]")
        shown.locator("#tab-recordings").click()
        shown.wait_for_selector("#recordings td:not(.minor)")
        heads = shown.locator("#recordings th:visible").all_text_contents()
        assert heads == ["channel", "", "from", "messages", "lost"]
        place = shown.locator("#recordings .scroll")
        assert place.evaluate("made => made.scrollWidth <= made.clientWidth")
    context.close()


ALIKE = [f"log:robot/front_left/camera/depth/image/{name}" for name in ("info", "data", "raw")]
ALIKE += ["log:robot/front_right/camera/depth/image/info", "log:a"]


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_channels_of_a_common_prefix_look_different(made, page, viewport):
    opened = [penstock.publish(name, term_length=1 << 16) for name in ALIKE]
    shown = page(viewport)
    look(made, shown)
    titles = shown.locator(".node.channel b").all_text_contents()
    assert len(set(titles)) == len(ALIKE)
    whole = "titles => titles.map(title => title.scrollWidth <= title.clientWidth)"
    assert all(shown.eval_on_selector_all(".node.channel b", whole)), "the browser cuts none of them again"
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for one in opened:
        one.close()


def test_a_phone_shows_whole_names_above_their_numbers(made, page):
    opened = [penstock.publish(name, term_length=1 << 16) for name in ALIKE]
    shown = page(PHONE)
    look(made, shown)
    shown.locator("#tab-channels").click()
    boxes = [row(shown, ALIKE[0]).locator("div").nth(number).bounding_box() for number in (0, 2, 4)]
    assert boxes[0]["width"] > boxes[1]["width"] + boxes[2]["width"]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] == boxes[2]["y"]
    assert row(shown, ALIKE[0]).locator(".name").text_content() == ALIKE[0]
    short = [row(shown, "log:a").locator("div").nth(number).bounding_box()["y"] for number in (0, 2)]
    assert abs(short[0] - short[1]) < 20, "a short name is beside its numbers"
    for one in opened:
        one.close()


def test_names_are_cut_as_in_the_terminal(page):
    many = [*ALIKE, "log:" + "x" * 60, *(f"log:robot/{n}/front_left/camera/image" for n in range(40))]
    many += ["log:" + "y" * 30 + one + "y" * 30 for one in "abc"]
    cut = "async ([names, letters]) => [...(await import('./format.js')).shortened(names, letters)]"
    shown = page()
    for letters in (8, 12, 20, 40):
        assert dict(shown.evaluate(cut, [many, letters])) == fitting.shortened(many, letters), letters


def test_two_hundred_channels_cost_little_work_per_look(made, page):
    """The work is counted: elements made, sparklines drawn, layouts of the page."""
    opened = [penstock.publish(f"log:robot/{number:03}", term_length=1 << 16) for number in range(200)]
    shown = page()
    opened[0].send(b"x")
    look(made, shown)
    look(made, shown)
    assert len(names(shown)) == 200
    assert shown.locator(".node.channel").count() == 60
    assert "60 of 200 channels" in shown.locator("#flow-about").text_content()
    shown.evaluate(
        """() => { window.made = 0; new MutationObserver((all) => { for (const one of all) for (const node of one.addedNodes)
        if (node.nodeType === 1) window.made += 1; }).observe(document.body, { childList: true, subtree: true }); }"""
    )
    session = shown.context.new_cdp_session(shown)
    session.send("Performance.enable")

    def layouts():
        return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["LayoutCount"]

    drawn, before = shown.evaluate("window.drawn.rows"), layouts()
    for _ in range(5):
        for handle in opened:
            handle.offer(b"x" * 50)
        look(made, shown)
    assert shown.evaluate("window.made") == 0, "elements are kept"
    assert shown.evaluate("window.drawn.rows") - drawn <= 5 * 40, "rows out of sight are not drawn"
    assert layouts() - before <= 5 * 12
    shown.locator("#flow-all").click()
    assert shown.locator(".node.channel").count() == 200
    for handle in opened:
        handle.close()


def test_a_browser_that_comes_later_or_again_has_the_history(made, page):
    with penstock.publish("log:a") as pub:
        for _ in range(3):
            made.take()
            pub.send(b"x")
        one, other = page(), page(PHONE)
        look(made, one)
        other.wait_for_selector(f'body[data-look="{made.number}"]')
        assert one.locator("#detail .chart canvas").first.get_attribute("aria-label").startswith("messages/s: ")


def test_the_end_of_the_monitor_is_said(browser):
    found = snapshots.Snapshots(every=3600)
    context = browser.new_context(viewport=WIDE)
    shown = context.new_page()
    shown.set_default_timeout(60_000)
    with Server(found) as server:
        shown.goto(server.url)
        shown.wait_for_selector("body[data-look]")
    shown.wait_for_selector('#status[data-state="lost"]', timeout=60_000)
    context.close()
