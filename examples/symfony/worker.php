<?php
/** The application in worker mode: howdah serve . --worker worker.php */

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/config/bootstrap.php';

$kernel = new Kernel($_SERVER['APP_ENV'] ?? 'prod', (bool) ($_SERVER['APP_DEBUG'] ?? false));
$kernel->boot();

$handler = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (howdah\handle_request($handler)) {
    gc_collect_cycles();
}
