<?php

// The pages of public/ on ReactPHP's HTTP server: at 127.0.0.1:$PORT, or at $HOWDAH_SOCKET as an HTTP application of howdah.
require __DIR__ . '/pages.php';
require getenv('REACTPHP') . '/autoload.php';

$server = new React\Http\HttpServer(static fn ($request) => new React\Http\Message\Response(
    200, ['Content-Type' => 'application/json'], page($request->getUri()->getPath())
));
$socket = getenv('HOWDAH_SOCKET');
// so_reuseport: each process has its own socket at the same port.
$server->listen(new React\Socket\SocketServer(
    $socket ? "unix://$socket" : '127.0.0.1:' . getenv('PORT'),
    ['tcp' => ['so_reuseport' => true, 'backlog' => 4096, 'tcp_nodelay' => true]]
));
