"""Pipes to which a server writes, and from which the test reads on demand."""

import os
import threading
from pathlib import Path


class Fifo:
    """A named pipe from which the test reads on demand."""

    def __init__(self, path: Path):
        os.mkfifo(path)
        path.chmod(0o666)
        self.path = path
        # Open at both ends, so that neither open() waits for the other.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._begin()

    def _begin(self) -> None:
        self.text = ""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._read)

    def fill(self) -> int:
        """Writes until the pipe is full, and returns the number of bytes."""
        filled = 0
        for size in (4096, 1):
            try:
                while True:
                    filled += os.write(self.descriptor, b"x" * size)
            except BlockingIOError:
                pass
        return filled

    def read(self) -> None:
        """Starts to read into `text`."""
        self.thread.start()

    def _read(self) -> None:
        while not self.ended.wait(0.001):
            try:
                self.text += os.read(self.descriptor, 1 << 20).decode()
            except BlockingIOError:
                pass

    def close(self) -> None:
        self.ended.set()
        if self.thread.ident:
            self.thread.join()
        os.close(self.descriptor)


class AnonymousPipe(Fifo):
    """A pipe without a name in the file system, as in `howdah … | tee`."""

    def __init__(self):
        self.descriptor, self.writer = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.writer}")
        self._begin()

    def close(self) -> None:
        super().close()
        os.close(self.writer)
