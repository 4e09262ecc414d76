<?php

/** Each request runs in a coroutine of amphp/amp 2. */

declare(strict_types=1);

use Amp\Delayed;
use Amp\Loop;
use howdah\Async;
use howdah\Async\Request;

use function Amp\asyncCall;

// In your application: require 'vendor/autoload.php'
require '/usr/share/php/Amp/autoload.php';
require '/usr/share/php/Amp/functions.php';
require '/usr/share/php/Amp/Internal/functions.php';

/** @return Generator<mixed> */
function handle(Request $request): Generator
{
    switch ($request->path()) {
        case '/wait':
            $milliseconds = (int) ($request->query()['ms'] ?? 50);
            yield new Delayed($milliseconds);
            $request->respond(200, ['Content-Type' => 'text/plain'], "waited $milliseconds ms\n");
            break;
        case '/events':
            $request->start(200, ['Content-Type' => 'text/event-stream', 'Cache-Control' => 'no-cache']);
            // false: the client has left.
            for ($number = 1; $number <= 3 && $request->write("data: $number\n\n"); $number++) {
                yield new Delayed(50);
            }
            $request->end();
            break;
        default:
            $request->respond(200, ['Content-Type' => 'text/plain'], "Hello\n");
    }
}

// An exception in a coroutine must not end the loop. The client gets 500 when $request is freed.
Loop::setErrorHandler(static fn (Throwable $error) => error_log((string) $error));
Loop::run(static function (): void {
    Loop::onReadable(Async\stream(), static function (string $watcher): void {
        while ($request = Async\accept()) {
            asyncCall(handle(...), $request);
        }
        // The loop ends with the last coroutine.
        Async\is_running() || Loop::cancel($watcher);
    });
});
