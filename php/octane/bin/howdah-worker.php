<?php

/** The worker script of Laravel Octane in howdah. `octane:start --server=howdah` starts it. */

declare(strict_types=1);

use Howdah\Octane\HowdahClient;
use Howdah\Octane\RequestLoop;
use Laravel\Octane\ApplicationFactory;
use Laravel\Octane\Worker;

if (!function_exists('howdah\handle_request')) {
    error_log("This script runs in howdah's worker mode: php artisan octane:start --server=howdah");
    exit(1);
}

// Octane's listeners write to them. PHP defines them for its command line only.
defined('STDOUT') || define('STDOUT', fopen('php://stdout', 'w'));
defined('STDERR') || define('STDERR', fopen('php://stderr', 'w'));

$basePath = getenv('APP_BASE_PATH');
if (!is_string($basePath) || !is_dir($basePath)) {
    fwrite(STDERR, "APP_BASE_PATH must be the folder of the Laravel application\n");
    exit(1);
}
// Laravel takes it into account when it decides between its console and its web behaviour.
$_ENV['APP_RUNNING_IN_CONSOLE'] = false;
require_once (getenv('COMPOSER_VENDOR_DIR') ?: "$basePath/vendor") . '/autoload.php';

$client = new HowdahClient("$basePath/public");
$worker = new Worker(new ApplicationFactory($basePath), $client);
// An exception of the boot ends the worker: howdah logs it, and starts the next worker after a pause.
$worker->boot();
(new RequestLoop($worker, $client))->run(
    (int) (getenv('MAX_REQUESTS') ?: 0),
    (int) (getenv('REQUEST_MAX_EXECUTION_TIME') ?: 0),
);
