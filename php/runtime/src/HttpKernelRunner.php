<?php

declare(strict_types=1);

namespace Howdah\Runtime;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpCache\HttpCache;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

/**
 * Handles requests with one kernel until howdah ends the worker.
 *
 * The kernel boots before the first request: a boot that fails is the answer to the start or the change. The client has
 * the response before terminate() and the reset run.
 *
 * After a request that ended with exit(), or with an exception that left the kernel, the kernel is rebooted: the
 * interrupted request is still on its stacks. A kernel that cannot be rebooted ends its worker then, and howdah starts
 * another one.
 */
final class HttpKernelRunner implements RunnerInterface
{
    private readonly ?KernelInterface $bootable;

    public function __construct(
        private readonly HttpKernelInterface $kernel,
        private readonly AfterRequest $afterRequest,
    ) {
        $inner = $kernel instanceof HttpCache ? $kernel->getKernel() : $kernel;
        $this->bootable = $inner instanceof KernelInterface ? $inner : null;
    }

    public function run(): int
    {
        $this->bootable?->boot();
        do {
            $isComplete = false;
            $hasRequest = \howdah\handle_request(function () use (&$isComplete): void {
                $this->handle();
                $isComplete = true;
            });
            if ($hasRequest && !$isComplete) {
                if ($this->bootable === null) {
                    return 0;
                }
                $this->reboot();
            }
            // Cycles of one request are not left for a later request to collect.
            gc_collect_cycles();
        } while ($hasRequest);

        return 0;
    }

    private function handle(): void
    {
        $request = Request::createFromGlobals();
        $response = $this->kernel->handle($request);
        // It completes the response, with fastcgi_finish_request().
        $response->send();
        if ($this->kernel instanceof TerminableInterface) {
            $this->kernel->terminate($request, $response);
        }
        match ($this->afterRequest) {
            // boot() of a kernel that has booted resets its services.
            AfterRequest::ResetServices => $this->bootable?->boot(),
            AfterRequest::RebootKernel => $this->reboot(),
        };
    }

    private function reboot(): void
    {
        $this->bootable?->shutdown();
        $this->bootable?->boot();
    }
}
