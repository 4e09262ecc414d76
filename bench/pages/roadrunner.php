<?php
// The pages of this folder as a worker of RoadRunner.
require getenv('LIBRARY');

$_SERVER['SERVER_SOFTWARE'] = 'howdah';
$worker = new Example\Worker();
while ($request = $worker->waitRequest()) {
    ob_start();
    require __DIR__ . parse_url($request[0]['uri'], PHP_URL_PATH);
    $worker->respond(200, ob_get_clean(), ['Content-Type' => 'text/html; charset=UTF-8']);
}
