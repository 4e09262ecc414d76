<?php

use App\Handler;
use Howdah\Psr15\Worker;
use Nyholm\Psr7\Factory\Psr17Factory;

require dirname(__DIR__) . '/vendor/autoload.php';
require dirname(__DIR__) . '/src/RequestHandlerInterface.php';

Worker::with(new Psr17Factory())->run(new Handler());
