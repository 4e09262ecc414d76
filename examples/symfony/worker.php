<?php
/** The application in worker mode: howdah serve . --worker worker.php */

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/config/bootstrap.php';

$kernel = new Kernel($_SERVER['APP_ENV'] ?? 'prod', (bool) ($_SERVER['APP_DEBUG'] ?? false));
$kernel->boot();

do {
    $isComplete = false;
    $hasRequest = howdah\handle_request(static function () use ($kernel, &$isComplete): void {
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
        $isComplete = true;
    });
    if ($hasRequest && !$isComplete) {
        // A controller has called exit(): its request is still on the kernel's stack.
        $kernel->shutdown();
        $kernel->boot();
    }
    gc_collect_cycles();
} while ($hasRequest);
