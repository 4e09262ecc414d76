"""A folder of small PHP pages with one server for many tests."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.folders import Folder
from support.http.client import Response
from support.server import Howdah

PAGES = Path(__file__).parent / "pages"


class Site(Folder):
    """A folder with the scripts of support/pages and one server for all tests of a file."""

    def __init__(self, path, **how):
        super().__init__(path)
        self.copy(PAGES)
        self.numbers = itertools.count(1)
        self.server = Howdah.serve(self, **how)

    def page(self, code: str) -> str:
        """Makes a script under a new name, so that opcache has no older version, and returns its URL path."""
        name = f"page{next(self.numbers)}.php"
        self.php(name, code)
        return "/" + name

    def get(self, code: str, headers=(), query: str = "") -> Response:
        """The response of a script to a GET request."""
        return self.server.get(self.page(code) + query, headers)

    def in_each_worker(self, count: int, code: str) -> list[Response]:
        """The responses of a script in `count` workers, each of which runs it once, at the same time."""
        meeting = self.scratch / f"meeting{next(self.numbers)}"
        meeting.mkdir()
        meeting.chmod(0o777)
        script = self.root / self.page(code)[1:]
        target = f"/together.php?in={meeting}&count={count}&then={script}"
        with ThreadPoolExecutor(count) as pool:
            return [answer.result() for answer in [pool.submit(self.server.get, target) for _ in range(count)]]

    def post(self, code: str, body, headers=(), query: str = "") -> Response:
        return self.server.post(self.page(code) + query, body, headers)
