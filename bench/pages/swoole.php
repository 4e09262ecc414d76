<?php
// The pages of this folder on Swoole's HTTP server.
$_SERVER['SERVER_SOFTWARE'] = 'swoole';
$mode = getenv('MODE') === 'base' ? SWOOLE_BASE : SWOOLE_PROCESS;
$server = new Swoole\Http\Server('127.0.0.1', (int) getenv('PORT'), $mode);
$server->set(['worker_num' => (int) getenv('PROCESSES'), 'log_level' => SWOOLE_LOG_ERROR, 'enable_coroutine' => false]);
$server->on('request', static function ($request, $response): void {
    ob_start();
    require __DIR__ . $request->server['request_uri'];
    // header() has no effect on PHP's command line.
    $body = ob_get_clean();
    $response->header('Content-Type', $body[0] === '{' ? 'application/json' : 'text/html; charset=UTF-8');
    $response->end($body);
});
$server->start();
