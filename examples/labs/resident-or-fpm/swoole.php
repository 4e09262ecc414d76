<?php

// The pages of public/ on Swoole's HTTP server. Each request includes its page, as PHP-FPM does.
$server = new Swoole\Http\Server('127.0.0.1', (int) getenv('PORT'), getenv('MODE') === 'base' ? SWOOLE_BASE : SWOOLE_PROCESS);
$server->set(['worker_num' => (int) getenv('PROCESSES'), 'log_level' => SWOOLE_LOG_ERROR, 'enable_coroutine' => false]);
$server->on('request', static function ($request, $response): void {
    ob_start();
    require __DIR__ . '/public' . $request->server['request_uri'];
    $response->header('Content-Type', 'application/json');
    $response->end(ob_get_clean());
});
$server->start();
