<?php

declare(strict_types=1);

namespace Howdah\Psr15;

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileFactoryInterface;
use Psr\Http\Message\UriFactoryInterface;
use Psr\Http\Server\RequestHandlerInterface;

/**
 * Runs a request handler: in worker mode for all requests until howdah ends the worker, in classic mode for the one
 * request of the script.
 *
 * An exception of the handler ends its request: without an exception handler of PHP, the client gets 500, and the
 * exception is in the application's log. The worker goes on.
 */
final class Worker
{
    public function __construct(
        private readonly RequestFromGlobals $requests,
        private readonly ResponseEmitter $emitter = new ResponseEmitter(),
    ) {
    }

    /** A worker with the factories of one PSR-17 library: nyholm/psr7, guzzlehttp/psr7 … */
    public static function with(
        ServerRequestFactoryInterface&UriFactoryInterface&StreamFactoryInterface&UploadedFileFactoryInterface $factory,
    ): self {
        return new self(new RequestFromGlobals($factory, $factory, $factory, $factory));
    }

    /** @param RequestHandlerInterface|callable(ServerRequestInterface): ResponseInterface $handler */
    public function run(RequestHandlerInterface|callable $handler): void
    {
        $handle = $handler instanceof RequestHandlerInterface ? $handler->handle(...) : $handler;
        $answer = function () use ($handle): void {
            $request = $this->requests->create();
            $this->emitter->emit($handle($request), $request->getMethod());
        };
        if (!\function_exists('howdah\handle_request')) {
            $answer();

            return;
        }
        while (\howdah\handle_request($answer)) {
            // Cycles of one request are not left for a later request to collect.
            gc_collect_cycles();
        }
    }
}
