<?php

/** Functions and the class that exist in async mode only: function_exists() recognizes the mode. */

declare(strict_types=1);

namespace howdah\Async;

/**
 * A stream that is readable when accept() has something to do: a request waits, or the worker must end.
 *
 * Only watch it. The first call ends the boot of the script.
 *
 *     $stream = howdah\Async\stream();
 *     while (howdah\Async\is_running()) {
 *         $read = [$stream, …];
 *         stream_select($read, …);
 *         while ($request = howdah\Async\accept()) {
 *             $request->respond(200, ['Content-Type' => 'text/plain'], "Hello\n");
 *         }
 *     }
 *
 * @return resource
 *
 * @throws \Error in a process that was forked
 */
function stream()
{
}

/**
 * The next request. null if none waits, or if the worker holds as many as "concurrency" allows: then the stream
 * becomes readable when that changes.
 *
 * @throws \Error in a process that was forked
 */
function accept(): ?Request
{
}

/**
 * Whether the worker takes more requests. If not, the script must end when it has answered those that it holds.
 *
 * @throws \Error in a process that was forked
 */
function is_running(): bool
{
}

/**
 * A request and its response. An object that is freed before its response is complete answers 500, or cuts the
 * response off.
 */
final class Request
{
    /** GET, POST … */
    public function method(): string
    {
    }

    /** The target as the client sent it: "/path?query". */
    public function uri(): string
    {
    }

    /** The target without the query. It is not decoded. */
    public function path(): string
    {
    }

    /**
     * The query, as $_GET would have it.
     *
     * @return array<array<mixed>|string>
     */
    public function query(): array
    {
    }

    /** The header of this name, in upper or lower case. */
    public function header(string $name): ?string
    {
    }

    /**
     * The headers, by name: "User-Agent", "Content-Type" …
     *
     * @return array<string, string>
     */
    public function headers(): array
    {
    }

    /**
     * The CGI variables, as $_SERVER would have them.
     *
     * @return array<string, string>
     */
    public function server(): array
    {
    }

    /**
     * The whole body. howdah has received it already.
     *
     * @throws \RuntimeException if the client has left before all of the body was copied
     */
    public function body(): string
    {
    }

    /**
     * The fields of a form, as $_POST would have them: of a body of the type application/x-www-form-urlencoded or
     * multipart/form-data, with any method. Other bodies have none.
     *
     * @return array<array<mixed>|string>
     *
     * @throws \RuntimeException as for body()
     */
    public function post(): array
    {
    }

    /**
     * The files of a form, as $_FILES would have them. move_uploaded_file() keeps one; the others are removed with the
     * object.
     *
     * @return array<string, array<string, mixed>>
     *
     * @throws \RuntimeException as for body()
     */
    public function files(): array
    {
    }

    /** Whether the client waits for the response, or the rest of it. */
    public function isOpen(): bool
    {
    }

    /**
     * The whole response.
     *
     * @param array<string, string|int|float|list<string|int|float>> $headers several values are several headers
     *
     * @return bool false if the client has left, or the request has taken longer than limits/timeout
     *
     * @throws \Error if the response has begun
     * @throws \ValueError if the status or a header is invalid
     */
    public function respond(int $status = 200, array $headers = [], string $body = ""): bool
    {
    }

    /**
     * The beginning of a response whose body follows in parts.
     *
     * @param array<string, string|int|float|list<string|int|float>> $headers several values are several headers
     *
     * @return bool as for respond()
     *
     * @throws \Error if the response has begun
     * @throws \ValueError if the status or a header is invalid
     */
    public function start(int $status = 200, array $headers = []): bool
    {
    }

    /**
     * A part of the body. The client gets it now.
     *
     * @return bool as for respond()
     *
     * @throws \Error before start() and after end()
     */
    public function write(string $bytes): bool
    {
    }

    /**
     * The last part of the body.
     *
     * @return bool as for respond()
     *
     * @throws \Error before start() and after end()
     */
    public function end(string $bytes = ""): bool
    {
    }
}
