<?php

declare(strict_types=1);

namespace Howdah\Runtime;

use Howdah\Psr15\Worker;
use Psr\Http\Server\RequestHandlerInterface;
use Symfony\Component\Runtime\RunnerInterface;

/** Handles requests with a PSR-15 request handler. */
final class RequestHandlerRunner implements RunnerInterface
{
    public function __construct(
        private readonly Worker $worker,
        private readonly RequestHandlerInterface $handler,
    ) {
    }

    public function run(): int
    {
        $this->worker->run($this->handler);

        return 0;
    }
}
