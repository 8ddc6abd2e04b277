"""Pages looked at: by a parser, and in a real browser where there is one."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 1280)


class Outline(HTMLParser):
    """Tags opened and closed, and attributes of each."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


MEASURE = """
const found = {};
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, root = page.documentElement, clipped = [];
  for (const element of page.body.querySelectorAll('*')) {
    if (element.closest('.scroll') && !element.matches('.scroll')) continue;  // scrolls in its own box
    if (element.matches('.scroll')) {  // it could, but at these widths it need not
      if (element.scrollWidth > element.clientWidth + 1) clipped.push('scrolls: ' + element.innerText.slice(0, 90));
      continue;
    }
    const box = element.getBoundingClientRect();
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== 'inline'
        || box.right > root.clientWidth + 1 || box.left < -1) clipped.push(element.outerHTML.slice(0, 80));
  }
  found[frame.width] = {
    overflow: root.scrollWidth - root.clientWidth, clipped, text: page.body.innerText.length,
    images: [...page.images].map(image => [image.naturalWidth, image.getBoundingClientRect().width]),
    columns: getComputedStyle(page.querySelector('.figures')).gridTemplateColumns.split(' ').length,
  };
}
document.body.textContent = JSON.stringify(found);
"""


def measure(text: str, folder: Path) -> dict:
    """Show a page in frames of all widths, in one window, and measure them when images are there."""
    frames = [f'<iframe width="{width}" height="900" srcdoc="{html.escape(text)}"></iframe>' for width in WIDTHS]
    script = f"<script>onload = () => {{ {MEASURE} }};</script>"
    harness = folder / "harness.html"
    harness.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{''.join(frames)}{script}", encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
        f"--user-data-dir={folder / 'user'}", "--virtual-time-budget=10000", "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"<body[^>]*>(.*)</body>", ran.stdout, re.DOTALL)
    return json.loads(html.unescape(found[1])) | {"console": re.findall(r".*CONSOLE.*", ran.stderr)}
