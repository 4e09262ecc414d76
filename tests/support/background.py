"""A call in a thread of its own."""

import threading
import time
from typing import Callable


class Background:
    """Starts the call at once; `result()` waits for its end."""

    def __init__(self, call: Callable, *arguments, **options):
        self.seconds: float | None = None
        """How long the call took."""
        self._value: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call, arguments, options), daemon=True)
        self._thread.start()

    def _run(self, call, arguments, options) -> None:
        began = time.monotonic()
        try:
            self._value = call(*arguments, **options)
        except BaseException as error:
            self._error = error
        self.seconds = time.monotonic() - began

    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self):
        """The value that the call returned; raises the error that it raised."""
        self._thread.join()
        if self._error:
            raise self._error
        return self._value
