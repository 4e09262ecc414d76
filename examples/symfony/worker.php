<?php
/** The application in worker mode: howdah serve . --worker worker.php */

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/config/bootstrap.php';

$kernel = new Kernel($_SERVER['APP_ENV'] ?? 'prod', (bool) ($_SERVER['APP_DEBUG'] ?? false));
$kernel->boot();
// As in howdah/runtime: all services are new for each request.
$reboots = ($_SERVER['HOWDAH_AFTER_REQUEST'] ?? '') === 'reboot-kernel';

do {
    $isComplete = false;
    $hasRequest = howdah\handle_request(static function () use ($kernel, &$isComplete): void {
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
        $isComplete = true;
    });
    // A controller that has called exit() leaves its request on the kernel's stack.
    if ($hasRequest && ($reboots || !$isComplete)) {
        $kernel->shutdown();
        $kernel->boot();
    }
    gc_collect_cycles();
} while ($hasRequest);
