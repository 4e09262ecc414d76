<?php

namespace App;

use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;

class Pages
{
    public function __construct(
        private RequestStack $requests,
        private CallsSinceReset $sinceReset,
        private CallsSinceBoot $sinceBoot,
    ) {
    }

    public static function await(string $file): void
    {
        for ($tries = 0; !file_exists($file); ++$tries) {
            if ($tries === 30_000) {
                throw new \RuntimeException("$file did not appear");
            }
            usleep(1000);
        }
    }

    public function state(): JsonResponse
    {
        return new JsonResponse([
            'pid' => getmypid(),
            'boots' => Kernel::$boots,
            'since_reset' => ++$this->sinceReset->count,
            'since_boot' => ++$this->sinceBoot->count,
            'main_request' => $this->requests->getMainRequest()->getRequestUri(),
        ]);
    }

    public function exit(): never
    {
        $this->sinceReset->count++;
        echo 'left';
        exit;
    }

    public function exception(): never
    {
        throw new \RuntimeException('as ordered');
    }

    /** The exception is thrown when the kernel has returned the response. */
    public function broken_body(): Response
    {
        return new class extends Response {
            public function sendContent(): static
            {
                throw new \RuntimeException('in the body');
            }
        };
    }

    public function stream(Request $request): Response
    {
        return new StreamedResponse(function () use ($request): void {
            echo "first\n";
            // php.ini may have an output buffer.
            while (ob_get_level() > 0 && ob_end_flush());
            flush();
            self::await($request->query->get('after'));
            echo "second\n";
        });
    }

    public function slow_end(): Response
    {
        return new Response('complete');
    }

    public function upload(Request $request): JsonResponse
    {
        $files = [];
        foreach ($request->files->all() as $field => $file) {
            $moved = $file->move(sys_get_temp_dir(), uniqid('symfony'));
            $files[$field] = [$file->getClientOriginalName(), hash_file('sha256', $moved)];
            unlink($moved);
        }

        return new JsonResponse(['fields' => $request->request->all(), 'files' => $files]);
    }

    public function cookies(Request $request): Response
    {
        $response = new JsonResponse($request->cookies->all());
        $response->headers->setCookie(Cookie::create('first', '1'));
        $response->headers->setCookie(Cookie::create('second', '2'));

        return $response;
    }
}
