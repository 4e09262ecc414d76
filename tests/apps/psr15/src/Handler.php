<?php

namespace App;

use Nyholm\Psr7\Response;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Server\RequestHandlerInterface;

class Handler implements RequestHandlerInterface
{
    private int $requests = 0;

    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        ++$this->requests;

        return match ($request->getUri()->getPath()) {
            '/headers' => (new Response(201, [], 'made', '1.1', 'Made'))
                ->withHeader('Set-Cookie', ['first=1; path=/', 'second=2; path=/'])
                ->withHeader('X-Several', ['one', 'two'])
                ->withHeader('Location', '/elsewhere'),
            '/session' => $this->session(),
            '/typeless' => new Response(200, [], 'no type'),
            '/stream' => new Response(200, ['Content-Type' => 'text/plain'], new Lines($request->getQueryParams()['after'])),
            '/large' => new Response(200, ['Content-Type' => 'text/plain'], str_repeat("a line\n", 1_000_000)),
            '/length' => new Response(200, ['Content-Length' => '7'], 'content'),
            '/exception' => throw new \RuntimeException('as ordered'),
            '/exit' => exit('left'),
            default => $this->json($request),
        };
    }

    private function session(): ResponseInterface
    {
        session_start();

        return (new Response(200, [], 'session'))->withHeader('Set-Cookie', 'mine=1');
    }

    private function json(ServerRequestInterface $request): ResponseInterface
    {
        return new Response(200, ['Content-Type' => 'application/json'], json_encode([
            'pid' => getmypid(),
            'requests' => $this->requests,
            'method' => $request->getMethod(),
            'version' => $request->getProtocolVersion(),
            'uri' => (string) $request->getUri(),
            'target' => $request->getRequestTarget(),
            'query' => $request->getQueryParams(),
            'cookies' => $request->getCookieParams(),
            'type' => $request->getHeaderLine('Content-Type'),
            'x_test' => $request->getHeader('X-Test'),
            'address' => $request->getServerParams()['REMOTE_ADDR'],
            'parsed' => $request->getParsedBody(),
            'body' => (string) $request->getBody(),
            'files' => $this->describe($request->getUploadedFiles()),
        ], JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR));
    }

    private function describe(UploadedFileInterface|array $files): array
    {
        if (is_array($files)) {
            return array_map($this->describe(...), $files);
        }
        if ($files->getError() !== UPLOAD_ERR_OK) {
            return ['error' => $files->getError()];
        }
        $target = tempnam(sys_get_temp_dir(), 'psr15');
        $files->moveTo($target);
        $hash = hash_file('sha256', $target);
        unlink($target);

        return [$files->getClientFilename(), $files->getClientMediaType(), $files->getSize(), $hash];
    }
}
