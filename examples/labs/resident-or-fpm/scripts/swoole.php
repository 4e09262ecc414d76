<?php

// The pages of public/ on Swoole's HTTP server: at 127.0.0.1:$PORT, or at $HOWDAH_SOCKET as an HTTP application of howdah.
// Each request includes its page. The process keeps its database connection, which is what "resident" is for.
require __DIR__ . '/pages.php';

$socket = getenv('HOWDAH_SOCKET');
$mode = getenv('MODE') === 'process' ? SWOOLE_PROCESS : SWOOLE_BASE;
$server = $socket
    ? new Swoole\Http\Server($socket, 0, $mode, SWOOLE_UNIX_STREAM)
    : new Swoole\Http\Server('127.0.0.1', (int) getenv('PORT'), $mode);
$server->set([
    'worker_num' => (int) (getenv('PROCESSES') ?: 1), 'log_level' => SWOOLE_LOG_ERROR, 'enable_coroutine' => false, 'backlog' => 4096,
]);
$server->on('request', static function ($request, $response): void {
    $response->header('Content-Type', 'application/json');
    $response->end(page($request->server['request_uri']));
});
$server->start();
