"""Pages in headless Chromium, driven through its DevTools pipe, for measurements and tests."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

# The first that is installed; Chrome has the same pipe.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """The path of a Chromium; None if there is none, or no pipe to it."""
    if os.name != "posix":
        return None
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """A browser with one page. Raises RuntimeError for an exception of JavaScript."""

    def __init__(self, browser: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wm-browser-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [browser, "--headless", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        words += ["--no-sandbox"] if os.getuid() == 0 else []
        words += [f"--user-data-dir={self._folder.name}", "about:blank"]
        # DevTools reads from descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        for descriptor in (theirs_in, theirs_out):
            os.close(descriptor)
        self._number, self._read, self._session = 0, b"", ""
        self.messages: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Runtime.enable")
        self.send("Page.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)  # keys reach a page without a window too

    def open(self, path: Path, width: int = 1280, height: int = 900, **media: str) -> None:
        """Load a page. `media` are features that it is shown with, such as prefers_color_scheme="dark"."""
        self.messages.clear()
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.evaluate("new Promise(done => document.readyState === 'complete' ? done() : onload = () => done())")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command. What the page logs meanwhile is kept in `messages`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.messages.append(json.dumps(answer["params"])[:500])
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            # Bytes read at once; any size would do.
            data = os.read(self._in, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._read += data
        line, _, self._read = self._read.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def evaluate(self, script: str) -> Any:
        """The value of an expression; of a promise, what it is resolved with."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            # A thousand characters of a stack trace tell the line.
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:1000])
        return done["result"].get("value")

    def processor_seconds(self) -> float:
        """The time that all of its processes have computed so far."""
        browser = psutil.Process(self._process.pid)
        times = (process.cpu_times() for process in (browser, *browser.children(recursive=True)))
        return sum(each.user + each.system for each in times)

    def key(self, key: str, kind: str) -> None:
        """Press ("keyDown") or release ("keyUp") a key."""
        self.send("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self, path: Path) -> None:
        """A PNG of the whole page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for descriptor in (self._in, self._out):
            os.close(descriptor)
        self._folder.cleanup()
