<?php

/** Each request runs in a fiber, and waits where it needs to: meanwhile, the other requests run. */

declare(strict_types=1);

use howdah\Async;
use howdah\Async\Request;

final class Fibers
{
    /** @var array<int, array{float, Fiber<mixed, mixed, mixed, mixed>}> those that sleep, and until when */
    private array $sleeping = [];

    /** Starts a fiber. It runs until it sleeps or ends. */
    public function start(callable $run): void
    {
        (new Fiber($run))->start();
    }

    /** Within a fiber: other fibers run for this time. */
    public function sleep(float $seconds): void
    {
        $fiber = Fiber::getCurrent() ?? throw new LogicException('call sleep() within a fiber');
        $this->sleeping[] = [microtime(true) + $seconds, $fiber];
        Fiber::suspend();
    }

    public function isEmpty(): bool
    {
        return $this->sleeping === [];
    }

    /** Waits for requests, and until the next fiber is due. Returns whether a request waits. */
    public function poll(mixed $stream): bool
    {
        $wait = $this->sleeping === [] ? 60.0 : max(0.0, min(array_column($this->sleeping, 0)) - microtime(true));
        $read = [$stream];
        $none = null;
        $count = stream_select($read, $none, $none, (int) $wait, (int) (($wait - (int) $wait) * 1e6));
        $now = microtime(true);
        foreach ($this->sleeping as $number => [$until, $fiber]) {
            if ($until <= $now) {
                unset($this->sleeping[$number]);
                $fiber->resume();
            }
        }
        return $count > 0;
    }
}

$fibers = new Fibers();

function handle(Fibers $fibers, Request $request): void
{
    switch ($request->path()) {
        case '/wait':
            $milliseconds = (int) ($request->query()['ms'] ?? 50);
            $fibers->sleep($milliseconds / 1000);
            $request->respond(200, ['Content-Type' => 'text/plain'], "waited $milliseconds ms\n");
            break;
        case '/events':
            $request->start(200, ['Content-Type' => 'text/event-stream', 'Cache-Control' => 'no-cache']);
            // false: the client has left.
            for ($number = 1; $number <= 3 && $request->write("data: $number\n\n"); $number++) {
                $fibers->sleep(0.05);
            }
            $request->end();
            break;
        default:
            $request->respond(200, ['Content-Type' => 'text/plain'], "Hello\n");
    }
}

$stream = Async\stream();
while (Async\is_running() || !$fibers->isEmpty()) {
    if ($fibers->poll($stream)) {
        while ($request = Async\accept()) {
            $fibers->start(function () use ($fibers, $request): void {
                try {
                    handle($fibers, $request);
                } catch (Throwable $error) {
                    // Otherwise it would end the loop. The client gets 500 when $request is freed.
                    error_log((string) $error);
                }
            });
        }
    }
}
