<?php

declare(strict_types=1);

namespace Howdah\Runtime;

use Howdah\Psr15\Worker;
use Nyholm\Psr7\Factory\Psr17Factory;
use Psr\Http\Server\RequestHandlerInterface;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

/**
 * Symfony's runtime, which handles requests in howdah's worker mode.
 *
 * In classic mode, on the command line and under other servers, a front controller runs as with Symfony's runtime.
 *
 * The option "after_request" (or the variable HOWDAH_AFTER_REQUEST of the environment) is a value of AfterRequest.
 */
class Runtime extends SymfonyRuntime
{
    private readonly AfterRequest $afterRequest;

    /** @param array<string, mixed> $options those of SymfonyRuntime, and after_request */
    public function __construct(array $options = [])
    {
        // The parent's constructor reads .env files into $_SERVER.
        parent::__construct($options);
        $this->afterRequest = AfterRequest::parse(
            $options['after_request'] ?? $_SERVER['HOWDAH_AFTER_REQUEST'] ?? AfterRequest::ResetServices,
        );
    }

    public function getRunner(?object $application): RunnerInterface
    {
        if ($application instanceof RequestHandlerInterface) {
            return new RequestHandlerRunner(Worker::with(new Psr17Factory()), $application);
        }
        if ($application instanceof HttpKernelInterface && \function_exists('howdah\handle_request')) {
            return new HttpKernelRunner($application, $this->afterRequest);
        }

        return parent::getRunner($application);
    }
}
