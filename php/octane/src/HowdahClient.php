<?php

declare(strict_types=1);

namespace Howdah\Octane;

use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Laravel\Octane\Contracts\Client;
use Laravel\Octane\Contracts\StoppableClient;
use Laravel\Octane\Octane;
use Laravel\Octane\OctaneResponse;
use Laravel\Octane\RequestContext;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Throwable;

/**
 * What Octane's worker needs of a server: the request is made of the superglobals, the response is PHP's output.
 */
final class HowdahClient implements Client, StoppableClient
{
    private bool $isStopped = false;

    /** @param string $publicPath the folder of `index.php` */
    public function __construct(private readonly string $publicPath)
    {
    }

    /** @return array{Request, RequestContext} */
    public function marshalRequest(RequestContext $context): array
    {
        // URLs are made as if index.php ran, which this script stands for.
        $_SERVER['DOCUMENT_ROOT'] = $this->publicPath;
        $_SERVER['SCRIPT_FILENAME'] = "$this->publicPath/index.php";
        $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = '/index.php';

        return [Request::createFromGlobals(), $context];
    }

    public function respond(RequestContext $context, OctaneResponse $octaneResponse): void
    {
        $response = $octaneResponse->response;
        $output = (string) $octaneResponse->outputBuffer;
        $isStream = $response instanceof StreamedResponse || $response instanceof BinaryFileResponse;
        if ($output !== '' && !$isStream) {
            // The output of the application while it made the response, such as that of dump().
            $response->setContent($output . $response->getContent());
            $response->headers->remove('Content-Length');
        }
        $response->send();
    }

    /** Octane calls this when the application has failed outside of Laravel's own exception handling. */
    public function error(Throwable $e, Application $app, Request $request, RequestContext $context): void
    {
        if (!headers_sent()) {
            header_remove();
            http_response_code(500);
            header('Content-Type: text/plain; charset=utf-8');
            echo Octane::formatExceptionForClient($e, (bool) $app->make('config')->get('app.debug'));
        }
    }

    /** Octane calls this after such an error: the state of the application may be damaged. */
    public function stop(): void
    {
        $this->isStopped = true;
    }

    /** Whether this worker must not handle another request. */
    public function isStopped(): bool
    {
        return $this->isStopped;
    }
}
