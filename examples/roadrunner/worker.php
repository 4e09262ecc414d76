<?php

declare(strict_types=1);

require __DIR__ . '/Worker.php';

// The application boots once.
$worker = new Example\Worker();
$requests = 0;

while ($request = $worker->waitRequest()) {
    [$context, $body] = $request;
    $requests++;
    $page = sprintf("Hello from worker %d, request %d: %s %s\n", getmypid(), $requests, $context['method'], $context['uri']);
    $worker->respond(200, $page, ['Content-Type' => 'text/plain; charset=utf-8']);
}
