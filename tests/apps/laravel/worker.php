<?php
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require __DIR__ . '/bootstrap/autoload.php';        // in your application: vendor/autoload.php

$app = require __DIR__ . '/bootstrap/app.php';
$app->instance('request', Request::create(getenv('APP_URL') ?: 'http://localhost'));
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();

$handler = static function () use ($kernel): void {
    $request = Request::capture();
    $response = $kernel->handle($request)->send();
    $kernel->terminate($request, $response);
};
while (howdah\handle_request($handler)) {
    $app->forgetScopedInstances();
    $app->make('session')->driver()->flush();
    $app->make('session')->driver()->regenerate();
    $app->make('auth')->forgetGuards();
    $app->forgetInstance('auth.driver');
    $app->make('cookie')->flushQueuedCookies();
    gc_collect_cycles();
}
