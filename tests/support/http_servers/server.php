<?php
// An HTTP server around stream_select, as ReactPHP and its like have one: one process, many connections, keep-alive.
// It listens where howdah wants it: on descriptor 3 (LISTEN_FDS), or at HOWDAH_ADDRESS.

declare(strict_types=1);

if (getenv('BOOT_FAILS') !== false) {
    fwrite(STDERR, "no database\nat boot\n");
    exit(78);
}
if (getenv('IGNORES_SIGTERM') !== false) {
    pcntl_signal(SIGTERM, SIG_IGN);
}
if (getenv('NEVER_LISTENS') !== false) {
    sleep(1000);
}
if (getenv('LISTEN_FDS') !== false) {
    if (getenv('LISTEN_FDS') !== '1' || getenv('LISTEN_PID') !== (string) getmypid()) {
        fwrite(STDERR, "LISTEN_FDS or LISTEN_PID is wrong\n");
        exit(1);
    }
    $listener = fopen('php://fd/3', 'r+');
} else {
    $address = getenv('HOWDAH_ADDRESS');
    $address = str_starts_with($address, 'unix:') ? 'unix://' . substr($address, 5) : "tcp://$address";
    $listener = stream_socket_server($address) ?: exit(1);
}
stream_set_blocking($listener, false);

/** The answer to a request: status and body; null closes the connection without one. */
function answer(string $path, array $query): ?array
{
    switch ($path) {
        case '/':
            $page = ['pid' => getmypid(), 'address' => getenv('HOWDAH_ADDRESS'), 'port' => getenv('PORT'),
                'uid' => posix_geteuid(), 'cwd' => getcwd(), 'version' => getenv('VERSION'), 'home' => getenv('HOME'),
                'arguments' => $_SERVER['argv']];
            return [200, json_encode($page)];
        case '/health':
            return file_exists((string) getenv('UNHEALTHY')) ? [503, 'no'] : [200, 'yes'];
        case '/slow':
            usleep((int) $query['ms'] * 1000);
            return [200, getenv('VERSION') . ' ' . getmypid()];
        case '/wait':
            touch($query['started']);
            while (!file_exists($query['for'])) {
                usleep(1000);
            }
            return [200, getenv('VERSION') . ' ' . getmypid()];
        case '/die':
            posix_kill(getmypid(), SIGKILL);
            return null;
        case '/exit':
            exit(3);
        case '/flood':
            for ($line = 0; $line < (int) $query['lines']; $line++) {
                fwrite(STDERR, str_repeat('x', 99) . "\n");
            }
            fwrite(STDERR, "the last line\n");
            return [200, 'flooded'];
        case '/child':
            $child = pcntl_fork();
            if ($child === 0) {
                sleep(1000);
                exit;
            }
            return [200, (string) $child];
        case '/escape':
            $child = pcntl_fork();
            if ($child === 0) {
                // It keeps the listening socket.
                posix_setsid();
                sleep(1000);
                exit;
            }
            // A signal to the group would end it until then.
            while (posix_getsid($child) !== $child) {
                usleep(1000);
            }
            return [200, (string) $child];
        default:
            return [404, 'nothing here'];
    }
}

[$connections, $buffers, $tunnels] = [[], [], []];
while (true) {
    $readable = [$listener, ...array_values($connections)];
    $none = null;
    if (!stream_select($readable, $none, $none, null)) {
        continue;
    }
    foreach ($readable as $stream) {
        if ($stream === $listener) {
            if ($connection = @stream_socket_accept($listener, 0)) {
                $connections[(int) $connection] = $connection;
                $buffers[(int) $connection] = '';
            }
            continue;
        }
        $id = (int) $stream;
        $bytes = fread($stream, 65536);
        if ($bytes === '' || $bytes === false) {
            unset($connections[$id], $buffers[$id], $tunnels[$id]);
            fclose($stream);
            continue;
        }
        if (isset($tunnels[$id])) {
            fwrite($stream, strtoupper($bytes));
            continue;
        }
        $buffers[$id] .= $bytes;
        while (($end = strpos($buffers[$id], "\r\n\r\n")) !== false) {
            $head = substr($buffers[$id], 0, $end);
            [$method, $target] = explode(' ', $head);
            $length = preg_match('/^content-length: *(\d+)/mi', $head, $found) ? (int) $found[1] : 0;
            if (strlen($buffers[$id]) < $end + 4 + $length) {
                break;
            }
            $buffers[$id] = substr($buffers[$id], $end + 4 + $length);
            parse_str(parse_url($target, PHP_URL_QUERY) ?? '', $query);
            if (preg_match('/^upgrade: *websocket/mi', $head)) {
                fwrite($stream, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
                $tunnels[$id] = true;
                break;
            }
            [$status, $body] = answer(parse_url($target, PHP_URL_PATH), $query);
            $size = strlen($body);
            fwrite($stream, "HTTP/1.1 $status X\r\nContent-Type: text/plain\r\nContent-Length: $size\r\n\r\n"
                . ($method === 'HEAD' ? '' : $body));
        }
    }
}
