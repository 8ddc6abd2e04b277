"""Pages looked at: by a parser, and in a real browser where there is one."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import html
import json
import os
import re
import select
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 1280)
QUIET = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--disable-background-networking",
    "--disable-component-update",
]  # fmt: skip


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
    if (element.closest('details:not([open])')) continue;
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
        CHROMIUM, "--headless", *QUIET, "--enable-logging=stderr",
        f"--user-data-dir={folder / 'user'}", "--virtual-time-budget=10000", "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"<body[^>]*>(.*)</body>", ran.stdout, re.DOTALL)
    return json.loads(html.unescape(found[1])) | {"console": re.findall(r".*CONSOLE.*", ran.stderr)}


class Browser:
    """Chromium without a window, told what to do through a pipe: pages are moved over and clicked on as people do."""

    def __init__(self, folder: Path) -> None:
        command_out, self._to = os.pipe()
        self._from, answers_in = os.pipe()
        pipes = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (command_out, answers_in)]  # clear of 3 and 4
        sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [
            CHROMIUM, "--headless", "--remote-debugging-pipe", f"--user-data-dir={folder / 'browser'}", *sandbox, *QUIET
        ]  # fmt: skip
        actions = [(os.POSIX_SPAWN_DUP2, pipes[0], 3), (os.POSIX_SPAWN_DUP2, pipes[1], 4)]
        actions += [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        self._pid = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=actions)
        for number in (command_out, answers_in, *pipes):
            os.close(number)
        self._buffer, self._count, self._events = b"", 0, []
        self._session: str | None = None
        self._folder = folder

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._ask("Browser.close", session=None)
        os.close(self._to)
        os.close(self._from)
        os.waitpid(self._pid, 0)

    def _receive(self) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], 60)
            if not ready:
                raise TimeoutError("the browser says nothing")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise OSError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _ask(self, method: str, *, session: str | bool | None = True, **parameters: Any) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        session = self._session if session is True else session
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self._events.append(answer)

    def show(self, text: str, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page, from a file, in a tab of its own."""
        path = self._folder / "shown.html"
        path.write_text(text, encoding="utf-8")
        target = self._ask("Target.createTarget", session=None, url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", session=None, targetId=target, flatten=True)["sessionId"]
        self._events.clear()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def move(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """Move the mouse over an element, to these shares of its width and height."""
        found = self.run(
            "(one => { one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            f" return [box.left, box.top, box.width, box.height]; }})(document.querySelector({json.dumps(selector)}))"
        )
        at = found[0] + x * found[2], found[1] + y * found[3]
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
        return at

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        at = self.move(selector, x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def picture(self, whole: bool = False) -> bytes:
        """What is seen, or all of the page, as PNG."""
        clip = {}
        if whole:
            width, height = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
            box = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            clip = {"clip": box, "captureBeyondViewport": True}
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png", **clip)["data"])

    @property
    def faults(self) -> list[str]:
        """Errors of scripts, what the console says, and requests for anything but the page."""
        found = []
        for event in self._events:
            told = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(told["exceptionDetails"])[:500])
                case "Runtime.consoleAPICalled" | "Log.entryAdded":
                    found.append(json.dumps(told)[:500])
                case "Network.requestWillBeSent" if not told["request"]["url"].startswith(("file:", "data:")):
                    found.append(told["request"]["url"])
        return found
