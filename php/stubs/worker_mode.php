<?php

/** Functions that exist in worker mode only: function_exists() recognizes the mode. */

declare(strict_types=1);

namespace howdah;

/**
 * Waits for a request, calls the handler, and completes the response.
 *
 *     while (howdah\handle_request($handler)) {
 *         gc_collect_cycles();
 *     }
 *
 * exit() and an uncaught exception end the handler only. Its return value is ignored.
 *
 * @param callable(): mixed $handler
 *
 * @return bool false when the worker must exit
 *
 * @throws \Error in a handler, and in a process that was forked
 */
function handle_request(callable $handler): bool
{
}
