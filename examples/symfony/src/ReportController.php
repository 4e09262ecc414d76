<?php

namespace App;

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;

class ReportController
{
    private const PHP_INI = [
        'date.timezone', 'display_errors', 'error_log', 'error_reporting', 'log_errors', 'memory_limit',
        'opcache.enable', 'opcache.max_accelerated_files', 'opcache.memory_consumption',
        'opcache.validate_timestamps', 'realpath_cache_size', 'realpath_cache_ttl', 'short_open_tag',
    ];

    public function __construct(private string $environment)
    {
    }

    public function __invoke(Request $request): JsonResponse
    {
        return new JsonResponse([
            'env' => $this->environment,
            'type' => explode('/', $request->server->get('SERVER_SOFTWARE', PHP_SAPI))[0],
            'pid' => getmypid(),
            'random_num' => mt_rand(0, 100_000),
            'php' => ['version' => PHP_VERSION] + array_combine(self::PHP_INI, array_map('ini_get', self::PHP_INI)),
        ]);
    }
}
