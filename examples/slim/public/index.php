<?php

use Howdah\Psr15\Worker;
use Nyholm\Psr7\Factory\Psr17Factory;
use Psr\Http\Message\ResponseInterface as Response;
use Psr\Http\Message\ServerRequestInterface as Request;
use Slim\App;

require dirname(__DIR__) . '/bootstrap.php';

$app = new App();

$app->get('/', function (Request $request, Response $response): Response {
    $response->getBody()->write("Hello from Slim\n");

    return $response->withHeader('Content-Type', 'text/plain');
});

$app->get('/hello/{name}', function (Request $request, Response $response, array $arguments): Response {
    $response->getBody()->write(json_encode(['hello' => $arguments['name'], 'pid' => getmypid()]));

    return $response->withHeader('Content-Type', 'application/json');
});

$psr17 = new Psr17Factory();
// Slim 4 is a PSR-15 request handler itself: ->run($app).
Worker::with($psr17)->run(fn (Request $request): Response => $app->process($request, $psr17->createResponse()));
