<?php
// Async mode: each request waits for `ms` milliseconds in the event loop, as sleep.php does in a process of its own.
$timers = new SplPriorityQueue();
$timers->setExtractFlags(SplPriorityQueue::EXTR_BOTH);
$stream = howdah\Async\stream();
while (howdah\Async\is_running() || !$timers->isEmpty()) {
    $wait = $timers->isEmpty() ? 60.0 : max(0.0, -$timers->top()['priority'] - microtime(true));
    $read = [$stream];
    $none = null;
    if (stream_select($read, $none, $none, (int) $wait, (int) (($wait - (int) $wait) * 1e6)) > 0) {
        while ($request = howdah\Async\accept()) {
            $timers->insert($request, -(microtime(true) + ($request->query()['ms'] ?? 50) / 1000));
        }
    }
    $now = -microtime(true);
    while (!$timers->isEmpty() && $timers->top()['priority'] >= $now) {
        $timers->extract()['data']->respond(200, [], 'done');
    }
}
