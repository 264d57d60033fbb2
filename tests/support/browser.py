"""Opens a page in headless Chromium, and reports its console messages, requests and layout."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageStat

from tests.support.machine import patience

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions", "--hide-scrollbars",
    "--disable-domain-reliability", "--disable-dev-shm-usage", "--enable-logging=stderr",
    "--force-device-scale-factor=1",
    # A host name that does not resolve, so that the browser's own requests fail.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
_DARK = "--blink-settings=preferredColorScheme=0"
# Requests that leave the machine, or would.
_OUTSIDE = ("http:", "https:", "ws:", "wss:", "ftp:")


_POLICY = re.compile(r"<meta http-equiv=[^>]*>")
_MEASURE = """
const faults = page => {
  const root = page.documentElement, found = [];
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...page.body.querySelectorAll("*")].filter(e =>
      e.getBoundingClientRect().right > root.clientWidth + 1 && !e.closest(".scroll, svg"));
    found.push(`the page is ${root.scrollWidth} wide: ` + wide.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join());
  }
  for (const svg of page.querySelectorAll("svg[role=img]")) {
    const frame = svg.getBoundingClientRect(), name = svg.querySelector("title").textContent;
    const labels = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    labels.forEach(([text, box], i) => {
      if (box.height < 7) found.push(`${name}: '${text}' is only ${box.height} high`);
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) found.push(`${name}: '${text}' reaches out`);
      for (const [other, it] of labels.slice(i + 1)) {
        const across = Math.min(box.right, it.right) - Math.max(box.left, it.left);
        const down = Math.min(box.bottom, it.bottom) - Math.max(box.top, it.top);
        if (across > 1 && down > 3) found.push(`${name}: '${text}' lies on '${other}'`);
      }
    });
  }
  return found;
};
onload = () => {
  const frames = [...document.querySelectorAll("iframe")];
  document.title = JSON.stringify(frames.map(f => faults(f.contentDocument).map(said => `${f.width}: ${said}`)).flat());
};
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """The results of a visit: console messages, the addresses that the page requested, and the browser's output."""

    console: tuple[str, ...]
    requests: tuple[str, ...]
    page: str


def browse(page: Path, *arguments: str, width: int = 1280, height: int = 1600, dark: bool = False) -> Visit:
    """Open a page in headless Chromium and return the results of the visit."""
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-browser-") as home:
        net = Path(home, "net.json")
        words = [str(CHROMIUM), *_QUIET, f"--user-data-dir={home}/profile", f"--log-net-log={net}"]
        words += [f"--window-size={width},{height}", *([_DARK] if dark else []), *arguments, page.absolute().as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=patience(300), check=False)
        assert done.returncode == 0, done.stderr
        asked = _requests_of_pages(net)
    return Visit(
        console=tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line),
        requests=tuple(asked),
        page=done.stdout,
    )


def screenshot(page: Path, picture: Path, *, width: int = 1280, height: int = 1600, dark: bool = False) -> Visit:
    """Write the first ``height`` pixels of a page to ``picture``, and return the results of the visit."""
    return browse(page, f"--screenshot={picture}", width=width, height=height, dark=dark)


def print_pdf(page: Path, pdf: Path) -> Visit:
    """Print a page into a PDF file with the browser, and return the results of the visit."""
    return browse(page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")


def layout_faults(page: Path, *widths: int) -> list[str]:
    """Return a sentence for each fault in a page's layout, at each of the given window widths in pixels.

    A page must not be wider than its window. Labels in pictures must be large enough, inside the picture, and must not
    overlap. Tables may be wider than the window, because they scroll.

    The page is shown in frames, because browser windows have a minimum width. The page itself runs no scripts, so a
    script in the outer page measures the frames.
    """
    text = html.escape(_POLICY.sub("", page.read_text(encoding="utf-8")))
    frames = "".join(f'<iframe width={w} height=4000 frameborder=0 srcdoc="{text}"></iframe>' for w in widths)
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-frame-") as home:
        outer = Path(home, "outer.html")
        outer.write_text(f"<!doctype html><meta charset=utf-8>{frames}<script>{_MEASURE}</script>", encoding="utf-8")
        visit = browse(outer, "--dump-dom", width=1600)
    found = re.search(r"<title>(.*?)</title>", visit.page, re.DOTALL)
    assert found, visit.page[:2000]
    faults: list[str] = json.loads(html.unescape(found[1]))
    return faults


def picture_statistics(picture: Path) -> tuple[int, float]:
    """Return the number of colours in a picture (1 for a blank page), and its mean brightness from 0 to 1."""
    with Image.open(picture) as image:
        small = image.convert("RGB")
        colours = len(small.getcolors(maxcolors=1 << 24))
        return colours, ImageStat.Stat(small.convert("L")).mean[0] / 255


def _requests_of_pages(net_log: Path) -> list[str]:
    """Return the addresses that pages requested, without the browser's own requests."""
    log = json.loads(net_log.read_text())
    start = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    begun = (e["params"] for e in log["events"] if e["type"] == start and "url" in e.get("params", {}))
    return [p["url"] for p in begun if p.get("initiator") != "not an origin" and p["url"].startswith(_OUTSIDE)]
