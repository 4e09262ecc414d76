<?php

// The Symfony application in howdah's async mode. Nothing in it waits, so that one request follows the other.

use App\Kernel;
use howdah\Async;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/../../../symfony/config/bootstrap.php';

$kernel = new Kernel(getenv('APP_ENV') ?: 'prod', false);
$kernel->boot();

$stream = Async\stream();
while (Async\is_running()) {
    $read = [$stream];
    $none = null;
    stream_select($read, $none, $none, 60);
    while ($received = Async\accept()) {
        $request = Request::create($received->uri(), $received->method(), [], [], [], $received->server(), $received->body());
        $response = $kernel->handle($request);
        $received->respond($response->getStatusCode(), $response->headers->all(), $response->getContent());
        $kernel->terminate($request, $response);
    }
}
