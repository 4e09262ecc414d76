<?php

declare(strict_types=1);

namespace Howdah\Octane;

use Laravel\Octane\Contracts\Worker;
use Laravel\Octane\RequestContext;

/**
 * Handles the requests of one worker. howdah starts another worker when it ends.
 */
final class RequestLoop
{
    public function __construct(private readonly Worker $worker, private readonly HowdahClient $client)
    {
    }

    /**
     * Runs until howdah ends the worker, or until Octane does after an error.
     *
     * @param int $maxRequests the requests of this worker; 0 for no limit
     * @param int $maxExecutionTime PHP's limit for each request, in seconds; 0 for the one of php.ini
     */
    public function run(int $maxRequests, int $maxExecutionTime): void
    {
        $handle = function () use ($maxExecutionTime): void {
            if ($maxExecutionTime > 0) {
                set_time_limit($maxExecutionTime);
            }
            [$request, $context] = $this->client->marshalRequest(new RequestContext());
            $this->worker->handle($request, $context);
        };
        $count = 0;
        try {
            while (
                ($maxRequests === 0 || $count < $maxRequests)
                && !$this->client->isStopped()
                && \howdah\handle_request($handle)
            ) {
                $count++;
            }
        } finally {
            $this->worker->terminate();
        }
    }
}
