"""A folder with one server script of async mode, and its server."""

from support.folders import Folder
from support.server import Howdah

LOOP = r"""
use howdah\Async\Request;

final class Timers {
    private static SplPriorityQueue $queue;
    public static function later(float $seconds, callable $act): void {
        self::queue()->insert($act, -(microtime(true) + $seconds));
    }
    private static function queue(): SplPriorityQueue {
        self::$queue ??= new SplPriorityQueue();
        self::$queue->setExtractFlags(SplPriorityQueue::EXTR_BOTH);
        return self::$queue;
    }
    public static function wait(): float {
        $queue = self::queue();
        return $queue->isEmpty() ? 60.0 : max(0.0, -$queue->top()['priority'] - microtime(true));
    }
    public static function run(): void {
        $queue = self::queue();
        while (!$queue->isEmpty() && -$queue->top()['priority'] <= microtime(true)) { ($queue->extract()['data'])(); }
    }
}
function later(float $seconds, callable $act): void { Timers::later($seconds, $act); }
function text(Request $request, string $text, int $status = 200): bool {
    return $request->respond($status, ['Content-Type' => 'text/plain'], $text);
}
/** Runs until the worker must end and `$holds()` is false. */
function serve(callable $handle, ?callable $holds = null): void {
    $stream = howdah\Async\stream();
    while (howdah\Async\is_running() || ($holds !== null && $holds())) {
        $read = [$stream];
        $none = null;
        $wait = min(Timers::wait(), howdah\Async\is_running() ? 60.0 : 0.05);
        if (@stream_select($read, $none, $none, (int) $wait, (int) (($wait - (int) $wait) * 1e6))) {
            while ($request = howdah\Async\accept()) { $handle($request); }
        }
        Timers::run();
    }
}
"""
"""`serve($handle)` calls `$handle($request)` for each request; `later($seconds, $act)` calls `$act()` later."""


class AsyncSite(Folder):
    """`script` is PHP code behind LOOP."""

    def __init__(self, path, script: str, concurrency: int = 100, processes=1, preboot=False, **application):
        super().__init__(path)
        # `use` must come before PREAMBLE's code.
        self.php("server.php", LOOP + script)
        worker = {"script": "server.php", "concurrency": concurrency, "preboot": preboot}
        self.application = {"type": "php", "root": str(self.root), "processes": processes, "worker": worker, **application}
        self.server = Howdah.run({"applications": {"app": self.application}})
