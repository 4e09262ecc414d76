<?php

/** Functions of FrankenPHP, for its worker scripts. They exist in worker mode only. */

declare(strict_types=1);

const FRANKENPHP_LOG_LEVEL_DEBUG = -4;
const FRANKENPHP_LOG_LEVEL_INFO = 0;
const FRANKENPHP_LOG_LEVEL_WARN = 4;
const FRANKENPHP_LOG_LEVEL_ERROR = 8;

/**
 * The same as howdah\handle_request().
 *
 * @param callable(): mixed $callback
 *
 * @return bool false when the worker must exit
 */
function frankenphp_handle_request(callable $callback): bool
{
}

/**
 * The same as fastcgi_finish_request().
 *
 * @return bool false if the response was already complete
 */
function frankenphp_finish_request(): bool
{
}

/**
 * The same as getallheaders().
 *
 * @return array<string, string>
 */
function frankenphp_request_headers(): array
{
}

/**
 * The same as apache_response_headers().
 *
 * @return array<string, string>
 */
function frankenphp_response_headers(): array
{
}

/**
 * Writes a line to the application's log.
 *
 * @param int $level one of FRANKENPHP_LOG_LEVEL_*, or a number between them
 * @param array<mixed> $context follows the message, as JSON
 */
function frankenphp_log(string $message, int $level = FRANKENPHP_LOG_LEVEL_INFO, array $context = []): void
{
}
