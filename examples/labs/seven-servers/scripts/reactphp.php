<?php

// The Symfony application on ReactPHP's HTTP server: at 127.0.0.1:$PORT, or at $HOWDAH_SOCKET as an HTTP application of howdah.

use App\Kernel;
use Psr\Http\Message\ServerRequestInterface;
use React\Http\Message\Response;
use Symfony\Component\HttpFoundation\Request;

require __DIR__ . '/../../../symfony/config/bootstrap.php';
require getenv('REACTPHP') . '/autoload.php';

$_SERVER['SERVER_SOFTWARE'] = 'reactphp';
$kernel = new Kernel(getenv('APP_ENV') ?: 'prod', false);
$kernel->boot();

$server = new React\Http\HttpServer(static function (ServerRequestInterface $received) use ($kernel): Response {
    $request = Request::create(
        (string) $received->getUri(), $received->getMethod(), (array) $received->getParsedBody(), $received->getCookieParams(),
        [], ['SERVER_SOFTWARE' => 'reactphp'], (string) $received->getBody()
    );
    $request->headers->replace($received->getHeaders());
    $response = $kernel->handle($request);
    $kernel->terminate($request, $response);
    if (getenv('REBOOT')) {
        $kernel->reboot(null);
    }
    return new Response($response->getStatusCode(), $response->headers->all(), $response->getContent());
});
$server->on('error', static fn (Throwable $error) => error_log((string) $error));

$socket = getenv('HOWDAH_SOCKET');
// so_reuseport: each process has its own socket at the same port.
$server->listen(new React\Socket\SocketServer(
    $socket ? "unix://$socket" : '127.0.0.1:' . getenv('PORT'),
    ['tcp' => ['so_reuseport' => true, 'backlog' => 4096, 'tcp_nodelay' => true]]
));
