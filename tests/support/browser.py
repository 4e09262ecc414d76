"""A page in a real browser: Debian's chromium-headless-shell, over the pipe of its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = shutil.which("chromium-headless-shell")
# A page that is not there after this time hangs.
PATIENCE = 60


class BrowserError(Exception):
    """The page threw an exception, or the browser rejected a command."""


class Browser:
    """One browser with one page at a time."""

    def __init__(self, folder: Path):
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and writes to descriptor 4.
        launch = f"exec {PROGRAM} \"$@\" 3<&{to_browser} 4>&{from_browser}"
        options = [
            "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-dev-shm-usage", "--force-color-profile=srgb", "--font-render-hinting=none",
            f"--user-data-dir={folder}", "about:blank",
        ]
        self._log = open(folder / "output", "w+")
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", launch, "browser", *options],
            pass_fds=[to_browser, from_browser], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""
        self.events: list[dict] = []
        # A browser that hangs is ended, so that reading from it does.
        self._guard = threading.Timer(PATIENCE, self.process.kill)
        self._guard.start()
        self._session = None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def close(self):
        self._guard.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._log.close()

    def command(self, method: str, **parameters) -> dict:
        """Sends a command; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def open(self, file: Path, width=1280, height=900, dark=False, scripts=True):
        """Opens a local file, and waits until it is loaded."""
        self.events.clear()
        self.size(width, height)
        self.media(dark=dark)
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.command("Page.navigate", url=file.as_uri())
        self._wait_for("Page.loadEventFired")

    def size(self, width: int, height: int):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def media(self, dark=False, paper=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", media="print" if paper else "", features=features)

    def run(self, script: str):
        """The value of an expression in the page; promises are awaited."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(json.dumps(found["exceptionDetails"], indent=1))
        return found["result"].get("value")

    def press(self, key: str, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        parameters = {"key": key, "code": key.strip() or "Space", "windowsVirtualKeyCode": codes[key], "modifiers": modifiers}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.command("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {}))
        self.command("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def screenshot(self, file: Path, whole=True):
        picture = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])

    def complaints(self) -> list[str]:
        """Errors of the page, and everything that it wanted to load from elsewhere."""
        self.run("0")
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(parameters["exceptionDetails"]))
                case "Log.entryAdded":
                    found.append(parameters["entry"]["text"])
                case "Runtime.consoleAPICalled":
                    found.append(json.dumps(parameters["args"]))
                case "Network.requestWillBeSent" if not parameters["documentURL"] == parameters["request"]["url"]:
                    found.append(f"request of {parameters['request']['url']}")
        return found

    def _wait_for(self, method: str):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read())

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 1 << 20)
            if not part:
                self._log.seek(0)
                raise BrowserError(f"the browser ended: {self._log.read()[-2000:]}")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser() -> Iterator[Browser]:
    folder = Path(tempfile.mkdtemp(prefix="howdah-browser-"))
    opened = Browser(folder)
    try:
        yield opened
    finally:
        opened.close()
        shutil.rmtree(folder, ignore_errors=True)
