<?php

/** An event loop without a library: stream_select() waits for requests, and until the next timer is due. */

declare(strict_types=1);

use howdah\Async;
use howdah\Async\Request;

final class Timers
{
    /** @var array<int, array{float, callable(): void}> when each is due, by the microtime */
    private array $timers = [];

    public function after(float $seconds, callable $act): void
    {
        $this->timers[] = [microtime(true) + $seconds, $act];
    }

    public function isEmpty(): bool
    {
        return $this->timers === [];
    }

    /** The seconds until the next timer. */
    public function wait(): float
    {
        return $this->timers === [] ? 60.0 : max(0.0, min(array_column($this->timers, 0)) - microtime(true));
    }

    public function run(): void
    {
        $now = microtime(true);
        foreach ($this->timers as $number => [$at, $act]) {
            if ($at <= $now) {
                unset($this->timers[$number]);
                $act();
            }
        }
    }
}

$timers = new Timers();

function text(Request $request, string $text): void
{
    $request->respond(200, ['Content-Type' => 'text/plain'], $text);
}

function event(Timers $timers, Request $request, int $number): void
{
    if ($number > 3) {
        $request->end();
    } elseif ($request->write("data: $number\n\n")) {
        // false: the client has left.
        $timers->after(0.05, fn () => event($timers, $request, $number + 1));
    } else {
        $request->end();
    }
}

function handle(Timers $timers, Request $request): void
{
    switch ($request->path()) {
        case '/wait':
            $milliseconds = (int) ($request->query()['ms'] ?? 50);
            $timers->after($milliseconds / 1000, fn () => text($request, "waited $milliseconds ms\n"));
            break;
        case '/events':
            $request->start(200, ['Content-Type' => 'text/event-stream', 'Cache-Control' => 'no-cache']);
            event($timers, $request, 1);
            break;
        default:
            text($request, "Hello\n");
    }
}

$stream = Async\stream();
while (Async\is_running() || !$timers->isEmpty()) {
    // The sockets of the application belong here, too.
    $read = [$stream];
    $none = null;
    $wait = $timers->wait();
    if (stream_select($read, $none, $none, (int) $wait, (int) (($wait - (int) $wait) * 1e6)) > 0) {
        while ($request = Async\accept()) {
            handle($timers, $request);
        }
    }
    $timers->run();
}
