<?php
// The pages of this folder on Swoole's HTTP server.
$_SERVER['SERVER_SOFTWARE'] = 'swoole';
$mode = getenv('MODE') === 'base' ? SWOOLE_BASE : SWOOLE_PROCESS;
$server = new Swoole\Http\Server('127.0.0.1', (int) getenv('PORT'), $mode);
$server->set(['worker_num' => (int) getenv('PROCESSES'), 'log_level' => SWOOLE_LOG_ERROR, 'enable_coroutine' => false]);
$server->on('request', static function ($request, $response): void {
    ob_start();
    require __DIR__ . $request->server['request_uri'];
    $response->header('Content-Type', 'text/html; charset=UTF-8');
    $response->end(ob_get_clean());
});
$server->start();
