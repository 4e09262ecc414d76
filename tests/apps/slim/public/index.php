<?php
/** A small application on the packaged Slim: one route for each feature that the framework needs of its server. */

require_once 'Slim/autoload.php';

use Slim\Http\Request;
use Slim\Http\Response;
use Slim\Http\Stream;

$app = new Slim\App(['settings' => ['displayErrorDetails' => false]]);

$app->add(fn (Request $request, Response $response, callable $next)
    => $next($request, $response)->withHeader('X-Middleware', 'passed'));

$app->get('/', fn (Request $request, Response $response) => $response->write('Hello from Slim'));

$app->get('/hello/{name}', fn (Request $request, Response $response, array $arguments)
    => $response->withJson(['hello' => $arguments['name'], 'base' => $request->getUri()->getBasePath()]))
    ->setName('hello');

$app->get('/link', fn (Request $request, Response $response)
    => $response->withRedirect($this->router->pathFor('hello', ['name' => 'again'])));

$app->map(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'], '/echo', fn (Request $request, Response $response)
    => $response->withStatus(202)->withJson([
        'method' => $request->getMethod(),
        'type' => $request->getMediaType(),
        'parsed' => $request->getParsedBody(),
        'length' => $request->getContentLength(),
        'query' => $request->getQueryParams(),
        'cookies' => $request->getCookieParams(),
        'scheme' => $request->getUri()->getScheme(),
        'port' => $request->getUri()->getPort(),
    ]));

$app->post('/upload', function (Request $request, Response $response) {
    $answer = [];
    foreach ($request->getUploadedFiles() as $field => $file) {
        $target = tempnam(sys_get_temp_dir(), 'slim');
        $file->moveTo($target);
        $answer[$field] = [
            'name' => $file->getClientFilename(),
            'type' => $file->getClientMediaType(),
            'size' => $file->getSize(),
            'sha256' => hash_file('sha256', $target),
        ];
        unlink($target);
    }
    return $response->withJson($answer);
});

$app->get('/cookies', fn (Request $request, Response $response) => $response
    ->withAddedHeader('Set-Cookie', 'first=1; path=/')
    ->withAddedHeader('Set-Cookie', 'second=2; path=/; HttpOnly'));

$app->get('/download', function (Request $request, Response $response) {
    $stream = fopen('php://temp', 'w+');
    for ($line = 0; $line < 200_000; $line++) {
        fwrite($stream, "line $line\n");
    }
    rewind($stream);
    return $response->withHeader('Content-Type', 'text/plain')->withBody(new Stream($stream));
});

$app->get('/nothing', fn (Request $request, Response $response) => $response->withStatus(204));

$app->get('/broken', function () {
    throw new RuntimeException('as ordered');
});

$app->run();
