<?php
// The worker of the tests: a page for each behaviour. The test copies Worker.php of examples/roadrunner and ProtoWorker.php beside it.

declare(strict_types=1);

require __DIR__ . '/Worker.php';
require __DIR__ . '/ProtoWorker.php';

if (getenv('BOOT_FAILS') !== false) {
    fwrite(STDERR, "no database\nat boot\n");
    exit(78);
}
if (getenv('BOOT_PRINTS') !== false) {
    echo "<br />\nWarning: something is deprecated in config.php on line 7\n";
}
if (getenv('BOOT_HANGS') !== false) {
    sleep(1000);
}
if (getenv('BOOT_WAITS') !== false) {
    // Names its relay in a file, and waits for another one.
    file_put_contents(getenv('BOOT_WAITS') . '.new', getenv('RR_RELAY'));
    rename(getenv('BOOT_WAITS') . '.new', getenv('BOOT_WAITS'));
    await(getenv('BOOT_WAITS') . '.end');
}
if (getenv('FIRST_REFUSES') !== false && @mkdir(getenv('FIRST_REFUSES'))) {
    $refuses = true;
}

$worker = getenv('UNDERSTANDS_PROTO') === false ? new Example\Worker() : new ProtoWorker();
$requests = 0;
$leak = [];

/** Waits for a file, for at most 15 s: a failed test must not leave a hanging worker. */
function await(string $file): void
{
    for ($turn = 0; !file_exists($file) && $turn < 15000; $turn++) {
        usleep(1000);
        clearstatcache();
    }
}

while ($request = $worker->waitRequest()) {
    [$context, $body] = $request;
    $requests++;
    parse_str($context['rawQuery'], $query);
    $path = parse_url($context['uri'], PHP_URL_PATH);
    if ($refuses ?? false) {
        $worker->stop();
        $refuses = false;
        continue;
    }
    switch ($path) {
        case '/':
            $worker->respond(200, json_encode(['pid' => getmypid(), 'requests' => $requests, 'version' => getenv('VERSION'),
                'uid' => posix_geteuid(), 'cwd' => getcwd(), 'mode' => getenv('RR_MODE'), 'relay' => getenv('RR_RELAY')]));
            break;
        case '/context':
            $worker->respond(200, json_encode(
                ['context' => $context, 'body' => base64_encode($body), 'raw' => base64_encode(serialize($context))],
                JSON_INVALID_UTF8_SUBSTITUTE
            ));
            break;
        case '/uploads':
            $contents = [];
            array_walk_recursive($context['uploads'], static function ($value, $key) use (&$contents): void {
                if ($key === 'tmpName' && $value !== '') {
                    $contents[] = [$value, file_get_contents($value), substr(sprintf('%o', fileperms($value)), -4)];
                }
            });
            $worker->respond(200, json_encode(
                ['uploads' => $context['uploads'], 'form' => json_decode($body), 'contents' => $contents]
            ));
            break;
        case '/length':
            $worker->respond(200, (string) strlen($body) . ' ' . md5($body));
            break;
        case '/echo':
            $worker->respond(200, $body, ['Content-Type' => 'application/octet-stream']);
            break;
        case '/response':
            ['status' => $status, 'headers' => $headers, 'body' => $text] = json_decode($body, true);
            $worker->respond($status, $text, $headers);
            break;
        case '/big':
            $worker->respond(200, str_repeat('0123456789abcdef', (int) $query['kib'] * 64));
            break;
        case '/stream':
            $chunks = (function () use ($query): Generator {
                for ($number = 1; $number <= (int) $query['chunks']; $number++) {
                    yield "chunk $number\n";
                    if (isset($query['after']) && $number === 1) {
                        await($query['after']);
                    }
                }
            })();
            $worker->respondStream(201, $chunks, ['X-Stream' => ['a', 'b']]);
            break;
        case '/endless':
            $chunks = (function (): Generator {
                while (true) {
                    yield str_repeat('x', 1000);
                    usleep(1000);
                }
            })();
            $isRead = $worker->respondStream(200, $chunks);
            file_put_contents($query['log'], $isRead ? 'read' : 'stopped ' . getmypid());
            break;
        case '/wait':
            touch($query['started']);
            await($query['for']);
            $worker->respond(200, getenv('VERSION') . ' ' . getmypid());
            break;
        case '/sleep':
            usleep((int) $query['ms'] * 1000);
            $worker->respond(200, getenv('VERSION') . ' ' . getmypid());
            break;
        case '/error':
            $worker->error("no database\nfor this request");
            break;
        case '/print':
            echo 'printed by a page';
            var_dump(1);
            $worker->respond(200, 'page');
            break;
        case '/refuse':
            $worker->stop();
            break;
        case '/die':
            posix_kill(getmypid(), SIGKILL);
            break;
        case '/exit':
            exit(3);
        case '/leak':
            $leak[] = str_repeat('x', (int) $query['mib'] << 20);
            $worker->respond(200, (string) getmypid());
            break;
        case '/raw':
            // Bytes of the client's choice, in place of an answer.
            fwrite(STDOUT, $body);
            if (isset($query['then'])) {
                $query['then'] === 'exit' ? exit(0) : sleep(1000);
            }
            break;
        case '/late':
            // Correct, and then more.
            $worker->respond(200, 'late');
            usleep(20000);
            fwrite(STDOUT, 'more');
            break;
        default:
            $worker->respond(404, '');
    }
}
exit((int) getenv('EXIT_CODE'));
