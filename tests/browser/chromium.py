"""A headless Chromium, led through its driver's own protocol: JSON over HTTP on loopback, and no package for it."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class NoBrowserError(Exception):
    """Why there is no browser here."""


@dataclass(frozen=True)
class Browser:
    """A window of a browser; `session` is where the driver listens to what it should do."""

    session: str

    def look(self, page: Path, width: int, height: int, scheme: str) -> None:
        """Open a page at a width in light or dark; narrow ones are phones."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._tell("Emulation.setDeviceMetricsOverride", metrics)
        self._tell("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self._post("/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def point(self, x: float, y: float) -> None:
        """Move the pointer over a place of the window."""
        self._tell("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def complaints(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._post("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that were asked for since it was last asked."""
        events = (json.loads(entry["message"])["message"] for entry in self._post("/se/log", {"type": "performance"}))
        sent = (event for event in events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path, top: float = 0, height: float | None = None) -> None:
        """A picture of the page from `top` on, of all of it without a height."""
        width, whole = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        shot = self._tell("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def _tell(self, command: str, params: dict[str, Any]) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": command, "params": params})

    def _post(self, path: str, content: dict[str, Any]) -> Any:
        return posted(f"{self.session}{path}", content)


def posted(address: str, content: dict[str, Any]) -> Any:
    """What the driver answers to a JSON object."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(content).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback, whatever proxies there are
    with direct.open(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())["value"]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    driver = shutil.which("chromedriver")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if driver is None or binary is None:
        missing = "chromedriver" if driver is None else "chromium"
        raise NoBrowserError(f"{missing} is not installed (Debian: apt-get install chromium chromium-driver)")
    with tempfile.TemporaryDirectory(prefix="nfdist-browser-", ignore_cleanup_errors=True) as profile:
        log = Path(profile) / "driver.log"
        with log.open("wb") as output, subprocess.Popen([driver, "--port=0"], stdout=output, stderr=output) as process:
            try:
                address = f"http://127.0.0.1:{_port(process, log)}/session"
                options = {"binary": binary, "args": [*ARGUMENTS, f"--user-data-dir={profile}/data"]}
                logs = {"browser": "ALL", "performance": "ALL"}
                wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": logs}
                session = posted(address, {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
                try:
                    yield Browser(f"{address}/{session}")
                finally:
                    closing = urllib.request.Request(f"{address}/{session}", method="DELETE")
                    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(closing, timeout=SECONDS).close()
            finally:
                process.terminate()
                process.wait(SECONDS)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The port that the driver chose."""
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        found = re.search(r"successfully on port (\d+)", log.read_text(errors="replace"))
        if found:
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise NoBrowserError(f"chromedriver did not start: {log.read_text(errors='replace').strip()}")
