<?php

// The pages of public/ as a worker of RoadRunner, and of howdah's RoadRunner mode.
require __DIR__ . '/pages.php';
require __DIR__ . '/../../../roadrunner/Worker.php';

$worker = new Example\Worker();
while ($request = $worker->waitRequest()) {
    $worker->respond(200, page(parse_url($request[0]['uri'], PHP_URL_PATH)), ['Content-Type' => 'application/json']);
}
