<?php
// The pages of this folder as a worker of RoadRunner.
require __DIR__ . '/../../examples/roadrunner/Worker.php';

$_SERVER['SERVER_SOFTWARE'] = 'howdah';
$worker = new Example\Worker();
while ($request = $worker->waitRequest()) {
    ob_start();
    require __DIR__ . parse_url($request[0]['uri'], PHP_URL_PATH);
    // header() has no effect on PHP's command line.
    $body = ob_get_clean();
    $worker->respond(200, $body, ['Content-Type' => $body[0] === '{' ? 'application/json' : 'text/html; charset=UTF-8']);
}
