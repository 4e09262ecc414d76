<?php

use App\Handler;

// autoload_runtime.php runs this script a second time.
require_once dirname(__DIR__) . '/src/RequestHandlerInterface.php';
require_once dirname(__DIR__) . '/vendor/autoload_runtime.php';

return fn () => new Handler();
