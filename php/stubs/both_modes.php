<?php

/** Functions in both modes, classic and worker. They are those of PHP-FPM, and headers_send(). */

declare(strict_types=1);

/**
 * Completes the response: the client gets it now, and the script goes on.
 *
 * @return bool false if the response was already complete
 */
function fastcgi_finish_request(): bool
{
}

/**
 * The headers of the request, by name: "User-Agent", "Content-Type" …
 *
 * @return array<string, string>
 */
function getallheaders(): array
{
}

/**
 * The same as getallheaders().
 *
 * @return array<string, string>
 */
function apache_request_headers(): array
{
}

/**
 * The headers of the response until now, by name. Of several headers with one name, the array has the last one.
 *
 * @return array<string, string>
 */
function apache_response_headers(): array
{
}

/**
 * Sends the headers now. A status below 200, such as 103 (Early Hints), sends them in a response before the response:
 * they remain for the response, unless header_remove() removes them.
 *
 * @return int 0 if the headers were sent, another number if they were not
 */
function headers_send(int $status = 200): int
{
}
