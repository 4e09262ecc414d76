<?php

// The Symfony application for FrankenPHP's worker mode.

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/../../../symfony/config/bootstrap.php';

$kernel = new Kernel(getenv('APP_ENV') ?: 'prod', false);
$kernel->boot();

$answer = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (frankenphp_handle_request($answer)) {
    gc_collect_cycles();
}
