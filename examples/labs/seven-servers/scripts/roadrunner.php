<?php

// The Symfony application as a worker of RoadRunner, and of howdah's RoadRunner mode.

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/../../../symfony/config/bootstrap.php';
require __DIR__ . '/../../../roadrunner/Worker.php';

$kernel = new Kernel(getenv('APP_ENV') ?: 'prod', false);
$kernel->boot();

$worker = new Example\Worker();
while ($received = $worker->waitRequest()) {
    [$context, $body] = $received;
    $request = Request::create($context['uri'], $context['method'], [], [], [], ['SERVER_SOFTWARE' => 'roadrunner'], $body);
    $request->headers->replace($context['headers']);
    $response = $kernel->handle($request);
    $worker->respond($response->getStatusCode(), $response->getContent(), $response->headers->all());
    $kernel->terminate($request, $response);
    if (getenv('REBOOT')) {
        $kernel->reboot(null);
    }
}
